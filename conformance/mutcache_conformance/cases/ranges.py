"""Storage whose place in memory a case chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from onnx import TensorProto

from mutcache_conformance.case import Storage
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.update import Update

#: A row of FLOAT has 256 bytes, the largest alignment that a runtime may ask for, so that any row may begin a storage.
SHAPE: Final = (8, 64)
ROW_BYTES: Final = 256


def within(storage: Storage, other: Storage, rows: int) -> Storage:
    """The storage in memory of ``other``, so many rows behind its start."""
    return replace(storage, within=other.name, offset=rows * ROW_BYTES)


def float_update(nonce: int, family: str) -> Update:
    """The model of one update of a cache of that shape."""
    return Update(Draw(nonce, family), TensorProto.FLOAT, SHAPE)
