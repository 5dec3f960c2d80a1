"""aiconfigurator's measured kernels: from a folder of tables, or from the installed package.

Products, attention and gated-DeltaNet layers are looked up as ``calibrate.compose`` does; what the
tables lack (small kernels, experts, a head size that nobody measured) comes from the datasheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from calibrate.analytic import ERROR as ANALYTIC_ERROR
from calibrate.analytic import Roofline
from calibrate.compose.attention import attention_cost
from calibrate.compose.gdn import gdn_term
from calibrate.compose.gemm import gemm_table
from calibrate.compose.linear import head_term, linear_term
from calibrate.compose.tables import Folders, Ledger, TableError
from calibrate.importers.common import About, Reading
from calibrate.profile import Assumption, ProfileError, StatedError, Term
from calibrate.shapes import Shape

LARGEST = 8192
SMALL = "elementwise"
PACKAGE = "aiconfigurator_core"

ERROR = StatedError(
    relative=0.12,
    basis="9 % of composed profiles, and 3 % for small kernels taken from the datasheet (docs/importers.md)",
)


def read_aiconfigurator(files: Sequence[Path], about: About) -> Reading:
    """A target composed from the tables of ``--select gpu=...``; ``ProfileError`` lists the GPUs found."""
    folder = _folder(files)
    gpu = _gpu(folder, about)
    shape = about.need_shape(folder)
    folders, ledger = Folders(folder, folder, folder), Ledger()
    try:
        table = gemm_table(folders, gpu, ledger)
    except TableError as error:
        raise ProfileError(str(folder), "gemm", str(error)) from None
    mixers, missing = _mixers(folders, gpu, shape, about, ledger)
    head = head_term(table, shape.head, "logits", ledger)
    return Reading(
        verify=(linear_term(table, shape.linears, ledger), head, *mixers),
        max_tokens=LARGEST,
        sources=ledger.sources,
        samples=ledger.samples,
        assumptions=_assumptions(about, missing),
        error=ERROR if missing == [SMALL] else ANALYTIC_ERROR,
        kind="composed",
    )


def _folder(files: Sequence[Path]) -> Path:
    if len(files) > 1:
        raise ProfileError(str(files[1]), "file", "give one folder of tables")
    if files:
        if not files[0].is_dir():
            raise ProfileError(str(files[0]), "file", "is not a folder; give the folder of the tables")
        return files[0]
    package = find_spec(PACKAGE)
    places = list(package.submodule_search_locations or ()) if package else []
    if not places:
        message = f"give a folder of tables, or install the package: pip install {PACKAGE.replace('_', '-')}"
        raise ProfileError(PACKAGE, "file", message)
    return Path(places[0]) / "systems" / "data"


def _gpu(folder: Path, about: About) -> str:
    flat = {path.name.split("_gemm_")[0] for path in folder.glob("*_gemm_vllm_*.parquet")}
    deep = {path.parts[len(folder.parts)] for path in folder.glob("*/*/vllm/*/gemm_perf.parquet")}
    found = sorted(flat | deep)
    wanted = about.select.get("gpu", "")
    if wanted in found:
        return wanted
    choices = ", ".join(found) or "none"
    raise ProfileError(str(folder), "--select gpu", f"is {wanted!r}; tables are there for: {choices}")


def _mixers(
    folders: Folders, gpu: str, shape: Shape, about: About, ledger: Ledger
) -> tuple[tuple[Term, ...], list[str]]:
    """Attention, state and expert layers; and the names of those that only the datasheet gives."""
    roofline, missing = Roofline(about.gpu), [SMALL]

    def measured(
        name: str, table: Callable[[], tuple[Term, ...]], sheet: tuple[Term, ...]
    ) -> tuple[Term, ...]:
        try:
            return table()
        except TableError:
            missing.append(name)
            return sheet

    at, gdn = shape.attention, shape.gdn
    terms = measured(
        "attention",
        lambda: attention_cost(folders, gpu, at, ledger).terms(at),
        (roofline.decode(at), roofline.prefill(at)),
    )
    if gdn is not None:
        sheet = (roofline.gdn(gdn, verifies=True),)
        terms += measured("gdn", lambda: (gdn_term(folders, gpu, gdn, ledger, verifies=True),), sheet)
    if shape.sliding is not None:
        terms += (roofline.sliding(shape.sliding),)
        missing.append("attention_sliding")
    if shape.moe is not None:
        terms += (roofline.moe(shape.moe),)
        missing.append("moe")
    return (*terms, roofline.elementwise(shape.elementwise)), missing


def _assumptions(about: About, missing: Sequence[str]) -> tuple[Assumption, ...]:
    return (
        Assumption(
            what=f"target.verify: {', '.join(missing)}",
            value=f"from the datasheet of {about.gpu.device.name}",
            why="the tables have no rows for it",
        ),
        Assumption(
            what="target.host, accept, drafters",
            value="none",
            why="no kernel table has them; give drafters with --drafter",
        ),
    )
