"""From a recipe of the catalogue to a profile: its target, its drafters, and how they are split."""

from __future__ import annotations

from dataclasses import replace

from calibrate.compose import overheads
from calibrate.compose.bundled import BUNDLED, compose_bundle
from calibrate.compose.catalogue import (
    CREATED,
    EAGLE3_LLAMA,
    ERROR,
    LLAMA_8B,
    NOT_COMPARED,
    RECIPES,
    Draft,
    Recipe,
)
from calibrate.compose.devices import H100
from calibrate.compose.model_files import draft_shape, target_shape
from calibrate.compose.passes import Kernels
from calibrate.compose.precision import BF16
from calibrate.compose.sdbench import ngram_terms, sdbench_profile
from calibrate.compose.tables import Folders, Ledger
from calibrate.configs import ShapeError
from calibrate.profile import SCHEMA, Drafter, Profile, Target, Term
from calibrate.shapes import Shape
from calibrate.sharding import Split, replica_work

COMMAND = (
    "python -m calibrate.compose --tables ../shared/data/aiconfigurator_perf "
    "--groundtruth ../shared/groundtruth --configs ../shared/data --out scenarios/profiles"
)
PACKAGED = f"{COMMAND} --package SITE-PACKAGES/aiconfigurator_core/systems/data"
BUNDLE = f"{PACKAGED} --bundles LLMServingSim/profiler/perf"
SDBENCH = "llama-3.1-8b-h100-sdbench"
NAMES = (*(recipe.name for recipe in RECIPES), SDBENCH, *BUNDLED)


def compose(name: str, folders: Folders, split: Split | None = None, draft_tp: int | None = None) -> Profile:
    """The profile ``name`` (one of ``NAMES``) from the tables; ``TableError`` when rows are missing.

    ``split`` and ``draft_tp`` lay it over other devices than its recipe says: the name then says so, too.
    """
    laid = split is not None or draft_tp is not None
    if laid and (name == SDBENCH or name in BUNDLED):
        raise ShapeError(f"{name}: is of measured steps or layers, which only its own devices take")
    if name == SDBENCH:
        model, head = target_shape(LLAMA_8B, "Llama-3.1-8B", folders), draft_shape(EAGLE3_LLAMA, folders)
        return sdbench_profile(name, model.work(), head.work(), H100.device, CREATED, f"{COMMAND} {name}")
    if name in BUNDLED:
        return compose_bundle(BUNDLED[name], folders, f"{BUNDLE} {name}")
    recipe = next(recipe for recipe in RECIPES if recipe.name == name)
    command = f"{COMMAND if recipe.rows and not laid else PACKAGED} {name}"
    if not laid:
        return _compose(recipe, folders, command)
    split = recipe.split if split is None else split
    asked = f" --tp {split.tp}" + (f" --dp {split.dp}" if split.dp > 1 else "")
    asked += (f" --ep {split.ep}" if split.ep > 1 else "") + (f" --draft-tp {draft_tp}" if draft_tp else "")
    return _compose(relaid(recipe, split, draft_tp), folders, command + asked)


def names_for(folders: Folders) -> tuple[str, ...]:
    """The profiles that the given folders are enough for."""
    packaged = {recipe.name for recipe in RECIPES if not recipe.rows}
    lacking = (packaged if folders.package is None else set()) | (
        set(BUNDLED) if folders.package is None or folders.bundles is None else set()
    )
    return tuple(name for name in NAMES if name not in lacking)


def relaid(recipe: Recipe, split: Split, draft_tp: int | None) -> Recipe:
    """``recipe`` over other devices, named after them; raw rows are left out.

    ``ShapeError`` when its drafters would take more devices than its target.
    """
    if draft_tp is not None and not 1 <= draft_tp <= split.tp:
        raise ShapeError(f"draft tp {draft_tp}: must be 1 to {split.tp}, the devices of the target")
    parts = [f"tp{split.tp}"] * (split.tp > 1) + [f"dp{split.dp}"] * (split.dp > 1)
    parts += [f"ep{split.ep}"] * (split.ep > 1) + [f"draft-tp{draft_tp}"] * (draft_tp is not None)
    drafts = recipe.drafts if draft_tp is None else tuple(replace(d, tp=draft_tp) for d in recipe.drafts)
    name = "-".join((recipe.name, *parts))
    return replace(recipe, name=name, split=split, drafts=drafts, rows=False, error=NOT_COMPARED)


def _compose(recipe: Recipe, folders: Folders, command: str) -> Profile:
    ledger, split = Ledger(keeps_rows=recipe.rows), recipe.split
    whole = target_shape(recipe.config, recipe.model, folders)
    kernels = Kernels(folders, recipe.machine, ledger, split, recipe.routing, recipe.precision, whole.moe)
    target = _target(recipe, whole, kernels)
    device = recipe.machine.device
    return Profile(
        schema=SCHEMA,
        name=recipe.name,
        kind="composed",
        created=CREATED,
        command=command,
        device=device if split.tp == 1 else device.model_copy(update={"count": split.tp}),
        dtype=recipe.precision.name,
        max_tokens=recipe.max_tokens,
        target=target,
        drafters=_drafters(recipe, target.verify, kernels),
        error=recipe.error or ERROR,
        sources=ledger.sources,
        assumptions=(*recipe.overheads.assumptions(), *recipe.assumptions),
        samples=ledger.samples,
        notes="Composed from kernel measurements; see docs/profiles.md for its error.",
    )


def _target(recipe: Recipe, whole: Shape, kernels: Kernels) -> Target:
    share = target_shape(recipe.config, recipe.model, kernels.folders, recipe.split)
    verify, precision = kernels.verify(share, recipe.vidur_model), recipe.precision
    return Target(
        work=replica_work(whole, share, recipe.split, precision.weight_bytes, precision.expert_bytes),
        verify=verify,
        accept=overheads.sampler(),
        host=recipe.overheads.host(),
        eager_extra=overheads.eager_extra(verify, whole.layers),
        piecewise_extra=overheads.piecewise_extra(whole.layers),
    )


def _drafters(recipe: Recipe, verify: tuple[Term, ...], kernels: Kernels) -> dict[str, Drafter]:
    drafters = {draft.name: _drafter(draft, recipe, kernels) for draft in recipe.drafts}
    if recipe.ngram:
        first = ngram_terms(verify, kernels.ledger)
        drafters["ngram"] = Drafter(kind="ngram", first=first, max_depth=16)
    return drafters


def _drafter(draft: Draft, recipe: Recipe, kernels: Kernels) -> Drafter:
    split = Split(recipe.split.tp if draft.tp is None else draft.tp)
    split = recipe.split if draft.as_target else split
    precision = recipe.precision if draft.as_target else BF16
    whole, share = draft_shape(draft, kernels.folders), draft_shape(draft, kernels.folders, split)
    drafting, launch = kernels.drafting(split, precision, whole.moe), recipe.overheads.launch()
    return Drafter(
        kind=draft.kind,
        work=replica_work(whole, share, split, precision.weight_bytes, precision.expert_bytes),
        first=(*drafting.draft_first(share), *launch),
        next=(*drafting.draft_next(share), *launch),
        max_depth=draft.max_depth,
    )
