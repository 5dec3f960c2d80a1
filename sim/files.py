"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from sim.errors import InputError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write text or bytes beside their place and rename them there; raises ``InputError``.

    The folder is made if need be.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
