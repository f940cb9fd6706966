"""The CUDA sources, and where what is compiled from them is kept."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "cuda"
#: The translation units.
UNITS: Final = ("update.cu", "gather.cu", "reencode.cu", "empty.cu")


def headers() -> dict[str, bytes]:
    """What units include, by name."""
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in {".cuh", ".inc", ".h"}}


def digest(unit: str, *conditions: str) -> str:
    """A name for what ``unit`` is compiled to under ``conditions``: compiler, version, options."""
    found = hashlib.sha256("\0".join((unit, *conditions)).encode())
    for name, content in ({unit: (FOLDER / unit).read_bytes()} | headers()).items():
        found.update(f"\0{name}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()[:32]


def cached(name: str) -> Path:
    """The path of a compiled file: in MUTCACHE_CACHE, else in the user's cache folder, which is made if need be.

    Where nothing can be written there, in a folder of this process alone.
    """
    root = os.environ.get("MUTCACHE_CACHE")
    folder = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mutcache"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _own_folder() / name
    return (folder if os.access(folder, os.W_OK) else _own_folder()) / name


@cache
def _own_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="mutcache-"))
