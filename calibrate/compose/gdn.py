"""Gated-DeltaNet layers: a state read and written per sequence, whatever the context."""

from __future__ import annotations

import numpy as np

from calibrate.compose.fits import Fit, relative_fit
from calibrate.compose.tables import AIC, AIC_LICENCE, Floats, Folders, Ledger, each, rows, significant
from calibrate.profile import Term
from calibrate.shapes import Gdn

DECODE = "fused_recurrent_gated_delta_rule_packed_decode"
CHUNK = "chunk_gated_delta_rule_flashinfer"


def gdn_term(folders: Folders, gpu: str, gdn: Gdn, ledger: Ledger, *, verifies: bool) -> Term:
    """The convolution and the recurrence of every gated-DeltaNet layer.

    A decode token reads and writes one state. Verifying k drafts reads it once and writes k+1
    (one per position, so that a rejection can go back), hence half of the measured per-sequence
    time goes to ``sequences`` and half to ``logits``. A drafter (``verifies`` false) keeps one
    state: all of it to ``sequences``. Prefill tokens pay the slope of the chunked kernel.
    """
    floor, per_sequence, per_token, source = _per_layer(folders, gpu, gdn, ledger)
    written = per_sequence / 2 if verifies else 0.0
    kept = per_sequence - written
    per_query = max(0.0, written - per_token) if verifies else 0.0
    return Term(
        name="gdn",
        mark="composed",
        source=source,
        fixed_ns=significant(gdn.layers * floor),
        per_ns={
            "sequences": significant(gdn.layers * (kept if verifies else max(0.0, kept - per_token))),
            "tokens": significant(gdn.layers * per_token),
            **({"logits": significant(gdn.layers * per_query)} if verifies else {}),
        },
    )


def _per_layer(folders: Folders, gpu: str, gdn: Gdn, ledger: Ledger) -> tuple[float, float, float, str]:
    conv = _decode(folders, gpu, gdn, "causal_conv1d_update", ledger)
    step = _decode(folders, gpu, gdn, DECODE, ledger)
    prefill_conv = _context(folders, gpu, gdn, "causal_conv1d_fn", ledger)
    chunk = _context(folders, gpu, gdn, CHUNK, ledger)
    floor = conv.coefficients[0] + step.coefficients[0]
    per_sequence = conv.coefficients[1] + step.coefficients[1]
    per_token = prefill_conv.coefficients[2] + chunk.coefficients[2]
    source = (
        f"aic-gdn-{gpu} {gdn.key_heads}/{gdn.value_heads} heads, x{gdn.layers} layers. "
        f"Decode (batch <= 512): recurrence {step}; convolution {conv}. Chunked prefill "
        f"(tokens <= 8192): recurrence {chunk}; convolution {prefill_conv}. Verify writes a state "
        "per position (assumed: half of the measured time is the write)"
    )
    return floor, per_sequence, per_token, source


def _table(
    folders: Folders, gpu: str, gdn: Gdn, kernel: str, domain: str, ledger: Ledger
) -> dict[str, Floats]:
    path = folders.perf(gpu, "gdn")
    key = ledger.source(f"aic-gdn-{gpu}", path, f"{AIC}: gated DeltaNet, vLLM kernels, {gpu}", AIC_LICENCE)
    table = rows(
        path,
        "batch_size, seq_len, min(latency) AS ms",
        f"kernel_source = '{kernel}' AND d_model = {gdn.hidden} AND num_k_heads = {gdn.key_heads} "
        f"AND num_v_heads = {gdn.value_heads} AND {domain} GROUP BY 1, 2",
        "1, 2",
    )
    for row in each(table):
        ledger.keep(kernel, key, row.pop("ms"), value_heads=gdn.value_heads, **row)
    return {name: column.astype(float) for name, column in table.items()}


def _decode(folders: Folders, gpu: str, gdn: Gdn, kernel: str, ledger: Ledger) -> Fit:
    table = _table(folders, gpu, gdn, kernel, "phase = 'generation' AND batch_size <= 512", ledger)
    batch = table["batch_size"]
    return relative_fit([np.ones_like(batch), batch], table["ms"] * 1e6)


def _context(folders: Folders, gpu: str, gdn: Gdn, kernel: str, ledger: Ledger) -> Fit:
    domain = "phase = 'context' AND num_tokens <= 8192 AND seq_len >= 64"
    table = _table(folders, gpu, gdn, kernel, domain, ledger)
    batch, tokens = table["batch_size"], table["batch_size"] * table["seq_len"]
    return relative_fit([np.ones_like(batch), batch, tokens], table["ms"] * 1e6)
