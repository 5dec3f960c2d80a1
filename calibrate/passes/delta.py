"""Gated DeltaNet (2412.06464): a recurrent state instead of keys and values.

Per head, with state S [dk, dv], decay a_t and step b_t:
    S_t = a_t S_{t-1} + k_t (b_t (v_t - a_t S_{t-1}^T k_t))^T,    o_t = S_t^T q_t.
For a few tokens at once the written values u_t solve a small triangular system, so that the old
state is read once for all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from calibrate.passes.cache import StateCache
from calibrate.passes.step import FALL_BACK, Segment, Step
from calibrate.passes.weights import Weights
from calibrate.shapes import Gdn

CHUNK = FALL_BACK
"""Tokens solved together in prefill, the chunk of the published kernels."""


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor, checkpoints: Tensor
) -> Tensor:
    """Outputs ``[B, H, T, dv]`` of T tokens; the states after the last N go to ``checkpoints``.

    ``q, k [B, H, T, dk]``, ``v [B, H, T, dv]``, ``log_decay, beta [B, H, T]``, ``state [B, H, dk, dv]``,
    ``checkpoints [B, H, N, dk, dv]`` with N from 1 to T; all float32.
    """
    past = log_decay.cumsum(-1)
    between = (past[..., :, None] - past[..., None, :]).tril().exp().tril()
    decay, step = past.exp()[..., None], beta[..., None]
    system = (step * (k @ k.mT) * between).tril(-1)
    written = torch.linalg.solve_triangular(
        system, step * (v - decay * (k @ state)), upper=False, unitriangular=True
    )
    _checkpoint(k, written, between, decay, state, checkpoints)
    out: Tensor = decay * (q @ state) + ((q @ k.mT) * between) @ written
    return out


def _checkpoint(
    k: Tensor, written: Tensor, between: Tensor, decay: Tensor, state: Tensor, checkpoints: Tensor
) -> None:
    """S_t = decay_t S_0 + sum_j between_tj k_j u_j^T, for the last N tokens t."""
    kept, tokens = checkpoints.shape[2], k.shape[2]
    torch.mul(decay[:, :, -kept:, :, None], state[:, :, None], out=checkpoints)
    scaled = between[:, :, -kept:, None, :] * k.mT[:, :, None]
    values = written[:, :, None].expand(-1, -1, kept, -1, -1)
    flat = checkpoints.view(-1, *checkpoints.shape[3:])
    flat.baddbmm_(scaled.reshape(-1, k.shape[3], tokens), values.reshape(-1, tokens, written.shape[3]))


class DeltaNet:
    """One gated-DeltaNet mixer: projections, short convolution, recurrence, gated norm, output."""

    def __init__(self, gdn: Gdn, weights: Weights) -> None:
        values = gdn.value_heads * gdn.value_dim
        self.gdn = gdn
        self.qkvz = weights.linear(gdn.conv_channels + values, gdn.hidden)
        self.ba = weights.linear(2 * gdn.value_heads, gdn.hidden)
        self.out = weights.linear(gdn.hidden, values)
        self.conv = weights.matrix(gdn.conv_channels, gdn.conv)
        self.log_rate, self.bias = weights.matrix(gdn.value_heads), weights.matrix(gdn.value_heads)
        self.norm = weights.norm(gdn.value_dim)

    def __call__(self, x: Tensor, step: Step, cache: StateCache, layer: int) -> Tensor:
        """``[tokens, hidden]`` to the same, new states beside the old ones."""
        gdn = self.gdn
        mixed, gate = torch.split(self.qkvz(x), [gdn.conv_channels, gdn.value_heads * gdn.value_dim], -1)
        b, a = self.ba(x).float().chunk(2, -1)
        log_decay = -self.log_rate.float().exp() * functional.softplus(a + self.bias.float())
        outs = [self._mix(mixed, log_decay, b.sigmoid(), s, cache, layer) for s in step.segments]
        out = torch.cat(outs) if len(outs) > 1 else outs[0]
        normed = functional.rms_norm(out, (gdn.value_dim,), self.norm.float()).to(x.dtype)
        return self.out(normed.flatten(1) * functional.silu(gate))

    def _mix(
        self, mixed: Tensor, log_decay: Tensor, beta: Tensor, segment: Segment, cache: StateCache, layer: int
    ) -> Tensor:
        part, gdn = segment.part, self.gdn
        at = slice(segment.token, segment.token + part.tokens)
        q, k, v = self._convolve(mixed[at], segment, cache, layer)
        decay, step = (t[at].view(part.rows, part.width, -1).transpose(1, 2) for t in (log_decay, beta))
        state, checkpoints = states_of(segment, cache, layer)
        out = _in_chunks(q, k, v, decay, step, state, checkpoints)
        return out.transpose(1, 2).reshape(part.tokens, gdn.value_heads, gdn.value_dim)

    def _convolve(
        self, mixed: Tensor, segment: Segment, cache: StateCache, layer: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Short causal convolution over the cached window, then unit queries and keys."""
        gdn, part = self.gdn, segment.part
        window, inputs = windows_of(segment, cache, layer)
        inputs[:, : gdn.conv - 1].copy_(window)
        inputs[:, gdn.conv - 1 :].copy_(mixed.view(part.rows, part.width, -1))
        wide = functional.conv1d(inputs.mT, self.conv[:, None], groups=gdn.conv_channels)
        keys = gdn.key_heads * gdn.key_dim
        sizes = [keys, keys, gdn.value_heads * gdn.value_dim]
        q, k, v = torch.split(functional.silu(wide.mT).float(), sizes, -1)
        values = v.view(part.rows, part.width, -1, gdn.value_dim).transpose(1, 2)
        return self._unit(q) * gdn.key_dim**-0.5, self._unit(k), values

    def _unit(self, x: Tensor) -> Tensor:
        heads = x.view(*x.shape[:2], -1, self.gdn.key_dim).transpose(1, 2)
        heads = functional.normalize(heads, dim=-1)
        return heads.repeat_interleave(self.gdn.value_heads // self.gdn.key_heads, 1)


def _in_chunks(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, step: Tensor, state: Tensor, checkpoints: Tensor
) -> Tensor:
    """All tokens at once where each is kept, else chunk by chunk with the last state carried on."""
    if checkpoints.shape[2] > 1 or q.shape[2] <= CHUNK:
        return delta_rule(q, k, v, decay, step, state, checkpoints)
    outs = []
    for first in range(0, q.shape[2], CHUNK):
        a, b, c, d, e = (t[:, :, first : first + CHUNK] for t in (q, k, v, decay, step))
        outs.append(delta_rule(a, b, c, d, e, state, checkpoints))
        state = checkpoints[:, :, 0].clone()
    return torch.cat(outs, 2)


def states_of(segment: Segment, cache: StateCache, layer: int) -> tuple[Tensor, Tensor]:
    """Views of a segment: states ``[rows, H, dk, dv]``, checkpoints ``[rows, H, N, dk, dv]``."""
    part = segment.part
    each = part.kept // part.rows
    state = cache.states[layer][segment.state : segment.state + part.rows]
    flat = cache.checkpoints[layer][segment.kept : segment.kept + part.rows * each]
    return state, flat.view(part.rows, state.shape[1], each, *state.shape[2:])


def windows_of(segment: Segment, cache: StateCache, layer: int) -> tuple[Tensor, Tensor]:
    """Views of a segment: cached inputs ``[rows, conv - 1, C]`` and those with the new ones behind."""
    part, window = segment.part, cache.windows[layer][segment.state : segment.state + segment.part.rows]
    first = segment.token + segment.state * window.shape[1]
    long = part.width + window.shape[1]
    flat = cache.inputs[layer][first : first + part.rows * long]
    return window, flat.view(part.rows, long, -1)
