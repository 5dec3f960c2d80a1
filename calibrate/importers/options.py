"""From the words of the command line to an ``About``; every error names the option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from pydantic import ValidationError

from calibrate.analytic import read_shape
from calibrate.datasheets import Gpu, find_gpu
from calibrate.from_steps import device_of, drafter_of, work_of
from calibrate.importers.common import About
from calibrate.profile import Drafter, DrafterKind, ModelWork, ProfileError
from calibrate.shapes import Shape

UNKNOWN_MATMUL = 0.8
"""Share of the peak that large products reach on a device without a datasheet here, as on most others."""


def about_from(
    *,
    device: str,
    gpus: int,
    config: str,
    model: str,
    parameters: float,
    bytes_each: float,
    kv_bytes: float,
    drafters: Sequence[str],
    draft_kind: str,
    select: Sequence[str],
    **plain: Any,
) -> About:
    """Everything the user says about a deployment; ``plain`` options go through as they are."""
    shape = read_shape(config) if config else None
    if shape is not None and model:
        shape = replace(shape, name=model)
    return About(
        gpu=_gpu(device, gpus),
        shape=shape,
        work=_work(shape, model, parameters, bytes_each, kv_bytes),
        drafters=_drafters(drafters),
        draft_kind=_kind(draft_kind),
        select=_pairs(select),
        **plain,
    )


def _gpu(text: str, count: int) -> Gpu:
    if not text:
        raise ProfileError(
            "--device", "is missing", "give a GPU by name, as in h100, or NAME:GB:GB_PER_S:TFLOPS"
        )
    try:
        gpu = _by_hand(text) if ":" in text else find_gpu(text)
    except ValueError as error:
        raise ProfileError("--device", text, _words(error)) from None
    device = gpu.device
    return replace(gpu, device=device.model_copy(update={"count": max(count, device.count)}))


def _words(error: ValueError) -> str:
    """What is wrong, in one line; pydantic's first finding with its field."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field} is {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"


def _by_hand(text: str) -> Gpu:
    return Gpu(device_of(text), UNKNOWN_MATMUL, "not measured: taken as on others")


def _work(
    shape: Shape | None, model: str, parameters: float, bytes_each: float, kv_bytes: float
) -> ModelWork:
    if shape is not None:
        return shape.work(bytes_each)
    if parameters <= 0:
        message = "give the target's config.json with --config, or its size with --parameters"
        raise ProfileError("--config", "is missing", message)
    return work_of(model or "target", parameters, bytes_each, kv_bytes)


def _drafters(texts: Sequence[str]) -> dict[str, Drafter]:
    try:
        return dict(drafter_of(text, "as given on the command line") for text in texts)
    except ValueError as error:
        raise ProfileError("--drafter", "value", _words(error)) from None


def _kind(text: str) -> DrafterKind:
    if text not in get_args(DrafterKind):
        raise ProfileError("--draft-kind", text, f"is not one of {', '.join(get_args(DrafterKind))}")
    return cast(DrafterKind, text)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise ProfileError("--select", key, "is not KEY=VALUE, as in gpu=h100_sxm")
    return {key: value for key, _, value in pairs}
