"""Every policy by name: one line each."""

from __future__ import annotations

from typing import Final

from sim.policies.adaserve import AdaServeConfig
from sim.policies.adaspec import AdaSpecConfig
from sim.policies.bandit import BanditConfig
from sim.policies.batch_profile import BatchProfileConfig
from sim.policies.config import PolicyConfig
from sim.policies.dcut import DCutConfig
from sim.policies.disable_by_batch_size import DisableByBatchSizeConfig
from sim.policies.draft_len_schedule import DraftLenScheduleConfig
from sim.policies.dsde import DsdeConfig
from sim.policies.dspark import DSparkConfig
from sim.policies.entropy_stop import EntropyStopConfig
from sim.policies.goodput import GoodputConfig
from sim.policies.leadline import LeadlineConfig
from sim.policies.mlc_auto import MlcAutoConfig
from sim.policies.off import OffConfig
from sim.policies.oracle import OracleConfig
from sim.policies.p_min import PMinConfig
from sim.policies.per_batch_and_context import PerBatchAndContextConfig
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.sglang_ema import SglangEmaConfig
from sim.policies.sglang_throughput_aware import SglangThroughputAwareConfig
from sim.policies.specdec_pp import SpecDecPPConfig
from sim.policies.static import StaticConfig
from sim.policies.tetris import TetrisConfig
from sim.policies.tree import TreeConfig
from sim.policies.vllm_adaptive import VllmAdaptiveConfig

POLICIES: Final[dict[str, type[PolicyConfig]]] = {
    "off": OffConfig,
    "static": StaticConfig,
    "tree": TreeConfig,
    "disable_by_batch_size": DisableByBatchSizeConfig,
    "per_batch_size": PerBatchSizeConfig,
    "per_batch_and_context": PerBatchAndContextConfig,
    "draft_len_schedule": DraftLenScheduleConfig,
    "mlc_auto": MlcAutoConfig,
    "sglang_ema": SglangEmaConfig,
    "sglang_throughput_aware": SglangThroughputAwareConfig,
    "batch_profile": BatchProfileConfig,
    "bandit": BanditConfig,
    "goodput": GoodputConfig,
    "leadline": LeadlineConfig,
    "p_min": PMinConfig,
    "entropy_stop": EntropyStopConfig,
    "specdec_pp": SpecDecPPConfig,
    "dsde": DsdeConfig,
    "adaspec": AdaSpecConfig,
    "dspark": DSparkConfig,
    "vllm_adaptive": VllmAdaptiveConfig,
    "tetris": TetrisConfig,
    "dcut": DCutConfig,
    "adaserve": AdaServeConfig,
    "oracle": OracleConfig,
}
