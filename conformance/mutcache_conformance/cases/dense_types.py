"""DENSE: every element type, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.draw import Draw, itemsize
from mutcache_conformance.cases.scene import Scene
from mutcache_conformance.cases.steps import accepted
from mutcache_conformance.cases.update import Update

#: Types that every runtime must move bit for bit.
CORE_TYPES: Final = ("FLOAT", "FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT32", "INT64", "BOOL")
#: The other fixed-width types of whole bytes; a runtime declares which of them it has.
OPTIONAL_TYPES: Final = (
    "DOUBLE",
    "INT16",
    "UINT16",
    "UINT32",
    "UINT64",
    "COMPLEX64",
    "COMPLEX128",
    "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ",
    "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ",
    "FLOAT8E8M0",
)

#: Signalling and quiet NaNs with payloads, both zeros, both infinities, the smallest subnormal.
_DOUBLES = (
    0x7FF0_0000_0000_0001,
    0x7FF8_0000_DEAD_BEEF,
    0xFFF5_A5A5_A5A5_A5A5,
    0,
    1 << 63,
    0x7FF << 52,
    0xFFF << 52,
    1,
)
_FLOATS = (0x7F80_0001, 0x7FC0_BEEF, 0xFFA5_A5A5, 0, 1 << 31, 0x7F80_0000, 0xFF80_0000, 1)
#: What a row holds; of types of one byte, every byte.
_PATTERNS: Final[Mapping[str, np.ndarray[Any, Any]]] = {
    "FLOAT": np.array(_FLOATS, "<u4"),
    "FLOAT16": np.array([0x7C01, 0x7E55, 0xFDAA, 0, 0x8000, 0x7C00, 0xFC00, 1], "<u2"),
    "BFLOAT16": np.array([0x7F81, 0x7FD5, 0xFFAA, 0, 0x8000, 0x7F80, 0xFF80, 1], "<u2"),
    "INT8": np.arange(256, dtype="u1"),
    "UINT8": np.arange(256, dtype="u1"),
    "INT32": np.array(_FLOATS, "<u4"),
    # Two of these have no double.
    "INT64": np.array([*_DOUBLES, 2**53 + 1, 2**63 - 1], "<u8"),
    "DOUBLE": np.array(_DOUBLES, "<u8"),
    "COMPLEX64": np.array([*_FLOATS, *_FLOATS[::-1]], "<u4"),
    "COMPLEX128": np.array([*_DOUBLES, *_DOUBLES[::-1]], "<u8"),
    **{f"FLOAT8{name}": np.arange(256, dtype="u1") for name in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ", "E8M0")},
}


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _types(nonce)
    yield from _patterns(nonce)


def _types(nonce: int) -> Iterator[Case]:
    for type_name in (*CORE_TYPES, *OPTIONAL_TYPES):
        draw = Draw(nonce, f"type {type_name}")
        update = Update(draw, TensorProto.DataType.Value(type_name), shape=(2, 5, 3))
        yield accepted(
            f"dense-007/{type_name.lower()}",
            (Req.MC_DENSE_007,),
            f"Any bits of {type_name}.",
            update,
            (draw.integer("position", 0, 2), 3),
            optional="" if type_name in CORE_TYPES else type_name,
        )


def _patterns(nonce: int) -> Iterator[Case]:
    """What arithmetic, comparison or conversion would change, in the values and in the rows beside them.

    A runtime may write rows in another way when they wrap, or when each row of the batch has its position.
    """
    for type_name, patterns in _PATTERNS.items():
        draw = Draw(nonce, f"patterns {type_name}")
        dtype = TensorProto.DataType.Value(type_name)
        row = patterns.tobytes()
        width = len(row) // itemsize(dtype)
        plain = Update(draw, dtype, (4, width), length=1)
        ways: dict[str, tuple[Update, int | tuple[int, int]]] = {
            "special": (plain, draw.integer("position", 0, 3)),
            "wrapped": (replace(plain, mode="circular", length=2), 3),
            "per-row": (replace(plain, shape=(2, 4, width), batch_axis=0), (draw.integer("first", 0, 2), 3)),
        }
        for word, (update, position) in ways.items():
            feeds, values = update.step(position), draw.name("values")
            count = int(np.prod(feeds[values].shape[:-1]))
            feeds[values] = replace(feeds[values], content=np.roll(patterns, 3).tobytes() * count)
            [(cache, storage)] = update.cache().items()
            mutable = {cache: replace(storage, content=row * int(np.prod(storage.shape[:-1])))}
            scene = Scene().load(update.model()).bind(mutable).run(feeds).release().unload()
            is_core = type_name in CORE_TYPES
            yield scene.case(
                f"dense-007/{word}-{type_name.lower()}",
                (Req.MC_DENSE_007,),
                f"Patterns of {type_name} that only a plain copy keeps, written the {word} way.",
                needs=frozenset[str]() if is_core else frozenset({f"dtype:{type_name}"}),
                required=is_core,
            )
