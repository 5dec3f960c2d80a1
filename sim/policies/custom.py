"""A user's own policy, named on purpose in the YAML as ``policy: module:Class``.

The class is imported from the scenario's folder or the Python path, called with ``params`` as
keyword arguments, and must offer what ``sim.policies.base.Policy`` says; subclassing
``PolicyDefaults`` leaves only ``draft_depths`` to write. It is trusted code: naming it runs it.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import Field

from sim.errors import InputError
from sim.policies.base import Policy
from sim.policies.config import Bounds, PolicyConfig

_NEEDED = (
    *("draft_depths", "stop_depths", "verify_depths", "observe"),
    *("clairvoyant", "wants_confidence", "wants_outcomes", "wants_progress", "drafts"),
    *("tree", "acceptance_loss"),
)


class CustomConfig(PolicyConfig):
    """A policy of your own: ``policy: module:Class`` and its ``params``."""

    policy: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    params: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the class")
    k_max: int = Field(default=7, ge=0, le=64, description="deepest depth that it may ask for")
    search: str = Field(default=".", description="folder to import from, relative to the scenario file")

    def build(self, bounds: Bounds) -> Policy:
        """Import the class and call it; ``InputError`` says what is missing."""
        made = self._made()
        missing = [name for name in _NEEDED if not hasattr(made, name)]
        if missing:
            raise InputError(
                f"{self.policy} lacks {', '.join(missing)}; subclass sim.policies.base.PolicyDefaults"
            )
        return cast(Policy, made)

    def _made(self) -> Any:
        cls = self._load()
        try:
            return cls(**self.params)
        except Exception as error:
            raise InputError(
                f"policy {self.policy}: cannot be made with params {self.params} ({error})"
            ) from error

    def _load(self) -> Any:
        module, _, name = self.policy.partition(":")
        try:
            return getattr(_module(module, Path(self.search)), name)
        except (ImportError, AttributeError, SyntaxError) as error:
            raise InputError(
                f"policy {self.policy!r} cannot be loaded ({error}); write module:Class"
            ) from None

    @property
    def depth(self) -> int:
        """The deepest depth that it may ask for."""
        return self.k_max


def _module(name: str, folder: Path) -> ModuleType:
    """The module of a file below ``folder``, loaded afresh; else one of the Python path."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
