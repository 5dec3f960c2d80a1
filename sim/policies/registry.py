"""Every policy by name: one line each."""

from __future__ import annotations

from typing import Final

from sim.policies.config import PolicyConfig
from sim.policies.disable_by_batch_size import DisableByBatchSizeConfig
from sim.policies.goodput import GoodputConfig
from sim.policies.off import OffConfig
from sim.policies.oracle import OracleConfig
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import StaticConfig

POLICIES: Final[dict[str, type[PolicyConfig]]] = {
    "off": OffConfig,
    "static": StaticConfig,
    "disable_by_batch_size": DisableByBatchSizeConfig,
    "per_batch_size": PerBatchSizeConfig,
    "goodput": GoodputConfig,
    "oracle": OracleConfig,
}
