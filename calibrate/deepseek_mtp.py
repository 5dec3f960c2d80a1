"""DeepSeek-V3's prediction head: one more layer with experts; embedding and output head are the target's."""

from __future__ import annotations

from dataclasses import replace

from calibrate.configs import Config, from_config
from calibrate.shapes import Linear, Shape


def deepseek_mtp_head(config: Config, name: str) -> Shape:
    """The head of a DeepSeek-V3 ``config.json``: two hidden states fused, then one of its layers."""
    shape = from_config({**config, "num_hidden_layers": 1, "first_k_dense_replace": 0}, name)
    hidden = shape.head.k
    return replace(
        shape,
        linears=(Linear("fuse", hidden, 2 * hidden), *shape.linears),
        embedding=0,
        borrowed_head=True,
        small_parameters=shape.small_parameters + 2 * hidden,
    )
