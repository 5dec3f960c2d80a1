"""Shapes of targets and drafters from their ``config.json`` among the tables, whole or one device's share."""

from __future__ import annotations

import json
from pathlib import Path

from calibrate.compose.catalogue import Draft
from calibrate.compose.tables import Folders
from calibrate.configs import QWEN35_08B, Config, from_config
from calibrate.shapes import Shape
from calibrate.sharding import WHOLE, Split, shard_config


def target_shape(config: str, name: str, folders: Folders, split: Split = WHOLE) -> Shape:
    """A target's shape, or one device's share of it, from its config file."""
    return from_config(shard_config(_read(folders.configs / config), split), name)


def draft_shape(draft: Draft, folders: Folders, split: Split = WHOLE) -> Shape:
    """A drafter's shape, or one device's share of it, from its config file or from the built-in one."""
    config = _read(folders.configs / draft.config) if draft.config else QWEN35_08B
    return draft.build(shard_config(config, split), draft.name)


def _read(path: Path) -> Config:
    config: Config = json.loads(path.read_text(encoding="utf-8"))
    return config
