"""A target from LLMServingSim's measurements: every layer of a model as vLLM runs it, one by one.

A bundle (casys-kaist/LLMServingSim, ``profiler/perf``, MIT) times each layer of one model at one
tensor parallel degree: products and small kernels over tokens, head and sampler over sequences,
attention over prefill chunk, decodes and context, an expert block over tokens and experts reached.
Times are microseconds of vLLM 0.19's eager kernels, so no launch is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from calibrate.compose.fits import Fit, relative_fit
from calibrate.compose.routing import Routing
from calibrate.compose.tables import Floats, Folders, Ledger, rows, significant
from calibrate.profile import Counted, Curve, Term
from calibrate.shapes import Attention, Moe, Shape

LICENCE = "MIT"
WHAT = "casys-kaist/LLMServingSim 5daddb2, profiler/perf: vLLM 0.19 kernels"
LARGEST = 2048
"""Tokens and, for decodes, sequences (256) up to which the bundles go."""

PRODUCTS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
EACH_LAYER = {"layernorm": 2, "qk_norm": 1, "rotary_emb": 1, "act_fn": 1}
ONCE = ("embedding", "final_layernorm")

DECODE_DOMAIN = "prefill_chunk = 0 AND kv_decode >= 64"
PREFILL_DOMAIN = "n_decode = 0 AND prefill_chunk >= 64 AND kv_prefill <= 4096"
UNPACKED_DOMAIN = (
    "m.prefill_chunk BETWEEN 16 AND 1024 AND m.kv_prefill <= 512 AND m.n_decode >= 32 "
    "AND m.kv_decode BETWEEN 512 AND 4096"
)


@dataclass(frozen=True)
class Bundle:
    """One model's measurements at one tensor parallel degree."""

    folders: Folders
    device: str
    model: str
    tp: int
    ledger: Ledger

    def verify(self, shape: Shape, moe: Routing | None = None) -> tuple[Term, ...]:
        """One forward pass of the target, collectives apart."""
        layers = shape.layers
        ops = {name: count * layers for name, count in EACH_LAYER.items()} | dict.fromkeys(ONCE, 1)
        experts = () if shape.moe is None or moe is None else (self._experts(shape.moe, moe),)
        return (
            self._dense("linear", dict.fromkeys(PRODUCTS, layers)),
            self._counted("lm_head", "lm_head", "logits"),
            *self._attention(shape.attention),
            *experts,
            self._dense("elementwise", ops),
        )

    def sampler(self) -> tuple[Term, ...]:
        """Sampling on the device."""
        return (self._counted("sampler", "sampler", "logits"),)

    def _file(self, name: str) -> tuple[Path, str]:
        path = self.folders.bundle(self.device, self.model, self.tp) / name
        key = f"llmservingsim-{path.stem}-tp{self.tp}"
        return path, self.ledger.source(key, path, f"{WHAT}, {self.device}, {self.model}", LICENCE)

    def _dense(self, name: str, counts: dict[str, int]) -> Term:
        """Kernels over tokens, each as often as ``counts`` says; names that the model lacks are left out."""
        path, key = self._file("dense.csv")
        table = rows(path, "layer, tokens, min(time_us) AS us", "true GROUP BY 1, 2", "1, 2")
        present = {layer: count for layer, count in counts.items() if (table["layer"] == layer).any()}
        x = np.unique(table["tokens"]).astype(float)
        total = np.zeros(len(x))
        for layer, count in present.items():
            own = table["layer"] == layer
            total += count * 1e3 * np.interp(x, table["tokens"][own].astype(float), table["us"][own])
        listing = ", ".join(f"{count} {layer}" for layer, count in present.items())
        return Term(name=name, mark="composed", source=f"{key}: {listing}", curve=_curve(x, total, "tokens"))

    def _counted(self, name: str, layer: str, over: Counted) -> Term:
        path, key = self._file("per_sequence.csv")
        table = rows(path, "sequences, time_us AS us", f"layer = '{layer}'", "1")
        x = np.concatenate([[0.0], table["sequences"].astype(float)])
        ns = np.concatenate([[0.0], 1e3 * table["us"].astype(float)])
        return Term(name=name, mark="composed", source=f"{key}: {layer}", curve=_curve(x, ns, over))

    def _attention(self, attention: Attention) -> tuple[Term, Term]:
        """Decode rows and prefill chunks, fitted apart; decode rows of wide passes from mixed steps.

        FlashAttention 2 packs the grouped queries of decode rows only while every sequence has one
        token. Steps that mix decodes with a prefill chunk show the cost without packing; verify passes
        of several tokens are taken to pay the same, as their queries fill no more than one tile.
        """
        path, key = self._file("attention.csv")
        decode, prefill, unpacked = _fit_decode(path), _fit_prefill(path), _unpacked(path)
        floor, per_sequence, per_context = decode.coefficients
        _, per_token, per_pair = prefill.coefficients
        layers = attention.layers
        source = (
            f"{key}, x{layers} layers. Decode (batch <= 256, context 64..16384): {decode}. Prefill (chunk "
            f"64..2048, prefix <= 4096): {prefill}"
        )
        wider = (
            f"in steps with a chunk of 16..1024 tokens a decode's context token takes {unpacked:.3g} ns a "
            f"layer (median), against {per_context:.3g} ns alone; wide verify passes as those (assumed)"
        )
        return (
            Term(
                name="attention_decode",
                mark="composed",
                source=f"{source}; {wider}",
                fixed_ns=significant(layers * floor),
                per_ns={
                    "sequences": significant(layers * max(0.0, per_sequence - per_token)),
                    "context_tokens": significant(layers * per_context),
                    "wide_context_tokens": significant(layers * max(0.0, unpacked - per_context)),
                },
            ),
            Term(
                name="attention_prefill",
                mark="composed",
                source=source,
                per_ns={
                    "tokens": significant(layers * per_token),
                    "prefill_pairs": significant(layers * per_pair),
                },
            ),
        )

    def _experts(self, moe: Moe, routing: Routing) -> Term:
        """The expert block at the experts that a step's tokens reach on the fullest device."""
        path, key = self._file("moe.csv")
        table = rows(path, "tokens, activated_experts AS experts, time_us AS us", "true", "1, 2")
        x = [n for n in TOKENS if n * routing.dp <= LARGEST]
        ns = [moe.layers * 1e3 * _block_us(table, routing.here(n), routing.reached(n)) for n in x]
        return Term(
            name="moe",
            mark="composed",
            source=f"{key}: {moe.layers} layers, {routing}; straight between measured tokens and experts",
            curve=_curve(np.array(x, dtype=np.float64), np.array(ns), "tokens"),
        )


def _fit_decode(path: Path) -> Fit:
    table = rows(path, "n_decode AS n, kv_decode AS context, time_us AS us", DECODE_DOMAIN, "1, 2")
    n, context = (table[name].astype(float) for name in ("n", "context"))
    return relative_fit([np.ones_like(n), n, n * context], table["us"].astype(float) * 1e3)


def _fit_prefill(path: Path) -> Fit:
    table = rows(path, "prefill_chunk AS chunk, kv_prefill AS prefix, time_us AS us", PREFILL_DOMAIN, "1, 2")
    chunk, prefix = (table[name].astype(float) for name in ("chunk", "prefix"))
    pairs = chunk * (prefix + chunk / 2)
    return relative_fit([np.ones_like(chunk), chunk, pairs], table["us"].astype(float) * 1e3)


def _unpacked(path: Path) -> float:
    """Nanoseconds per context token of decodes in steps with a prefill chunk, the chunk's own taken off."""
    query = (
        f"(SELECT m.n_decode * m.kv_decode AS context, m.time_us - p.time_us AS us "
        f"FROM read_csv('{path}') m JOIN read_csv('{path}') p USING (prefill_chunk, kv_prefill) "
        f"WHERE p.n_decode = 0 AND {UNPACKED_DOMAIN})"
    )
    found = duckdb.execute(f"SELECT median(1e3 * us / context) FROM {query}").fetchone()
    return 0.0 if found is None or found[0] is None else float(found[0])


def _block_us(table: dict[str, Floats], tokens: float, experts: float) -> float:
    """Straight in experts (the last slope beyond) at the measured token counts, then in tokens."""
    counts = np.unique(table["tokens"]).astype(float)
    at = [
        _line(experts, table["experts"][table["tokens"] == n], table["us"][table["tokens"] == n])
        for n in counts
    ]
    return float(np.interp(tokens, counts, at))


def _line(at: float, x: Floats, y: Floats) -> float:
    if at <= x[-1] or len(x) == 1:
        return float(np.interp(at, x, y))
    return float(y[-1] + (y[-1] - y[-2]) / (x[-1] - x[-2]) * (at - x[-1]))


def _curve(x: Floats, ns: Floats, over: Counted) -> Curve:
    return Curve(over=over, x=tuple(int(n) for n in x), ns=tuple(significant(value) for value in ns.tolist()))


TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
