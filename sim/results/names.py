"""Every metric by name: what it is called in tables, its unit, and which way is better.

The names are vLLM bench's (``ttft``, ``tpot``, ``itl``, ``e2el``); other tools use the same words
for other things, so ``docs/metrics.md`` gives each formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Better = Literal["lower", "higher"] | None
LATENCIES: Final = ("ttft", "tpot", "itl", "e2el")
STATISTICS: Final = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True)
class MetricName:
    """One metric: ``better`` is ``None`` where neither direction is good in itself."""

    name: str
    label: str
    unit: str = ""
    better: Better = None


def _latencies() -> tuple[MetricName, ...]:
    return tuple(
        MetricName(f"{kind}_{statistic}_ms", f"{kind.upper()} {statistic}", "ms", "lower")
        for kind in LATENCIES
        for statistic in STATISTICS
    )


METRICS: Final[dict[str, MetricName]] = {
    metric.name: metric
    for metric in (
        *_latencies(),
        MetricName("client_wait_mean_ms", "client wait mean", "ms", "lower"),
        MetricName("client_wait_p99_ms", "client wait p99", "ms", "lower"),
        MetricName("requests_per_s", "requests", "/s", "higher"),
        MetricName("output_tokens_per_s", "output tokens", "/s", "higher"),
        MetricName("goodput_per_s", "goodput", "/s", "higher"),
        MetricName("slo_share", "share meeting the SLO", "", "higher"),
        MetricName("acceptance_length", "acceptance length", "tokens"),
        MetricName("draft_waste_share", "drafts rejected", "", "lower"),
        MetricName("depth_mean", "depth"),
        MetricName("depth_flips_per_s", "changes of depth", "/s"),
        MetricName("batch_mean", "batch"),
        MetricName("step_mean_ms", "step mean", "ms"),
        MetricName("step_p50_ms", "step p50", "ms"),
        MetricName("step_p99_ms", "step p99", "ms"),
        MetricName("step_waste_share", "step tokens wasted", "", "lower"),
        MetricName("preemptions", "preemptions", "", "lower"),
        MetricName("kv_peak_share", "KV peak"),
        MetricName("busy_share", "utilisation"),
        MetricName("flops_per_token", "FLOPs per output token", "", "lower"),
        MetricName("bytes_per_token", "bytes per output token", "", "lower"),
        MetricName("window_requests", "requests measured"),
        MetricName("warmup_requests", "requests cut as warm-up"),
        MetricName("unfinished_share", "requests unfinished", "", "lower"),
        MetricName("failed_share", "requests failed", "", "lower"),
        MetricName("retries", "requests sent again", "", "lower"),
        MetricName("replicas_mean", "replicas"),
        MetricName("replica_hours", "replica hours", "h", "lower"),
        MetricName("gpu_hours", "GPU hours", "h", "lower"),
        MetricName("timed_out_share", "requests timed out", "", "lower"),
    )
}
"""In the order in which they stand in tables and files."""
