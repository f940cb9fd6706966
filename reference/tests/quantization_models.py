"""Declarations that the tests of the codecs share: every combination that version 1 accepts, by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mutcache.proto.onnx_ml import PackedLinearUniformProto, QuantizationProto, TensorProto

T = TensorProto

SIGNED: Final = {"INT8": 8, "INT4": 4, "INT2": 2}
UNSIGNED: Final = {"UINT8": 8, "UINT4": 4, "UINT2": 2}
FLOATS: Final = {"FLOAT8E4M3FN": 8, "FLOAT4E2M1": 4}
BITS: Final = {**SIGNED, **UNSIGNED, **FLOATS}
LARGEST: Final = {"FLOAT": (2.0 - 2.0**-23) * 2.0**127, "FLOAT16": 65504.0, "BFLOAT16": (2.0 - 2.0**-7) * 2.0**127}
DECODED: Final = ("FLOAT", "FLOAT16", "BFLOAT16")
LAYOUTS: Final = ("SEQUENTIAL", "INTERLEAVED")


def packed(
    storage: str,
    scale: str,
    *,
    block: int = 32,
    axis: int = 1,
    zero_point: bool = False,
    correction: str = "",
    layout: str = "SEQUENTIAL",
    data: str = "FLOAT16",
) -> QuantizationProto:
    """A ``packed_linear`` declaration; types are given by their names."""
    proto = QuantizationProto(data_type=number(data))
    member = proto.packed_linear
    member.storage_type = number(storage)
    member.bits = BITS[storage]
    member.symmetric = storage not in UNSIGNED
    member.block_size = block
    member.axis = axis
    member.scale_type = number(scale)
    if zero_point:
        member.zero_point_type = T.UINT8
    if correction:
        member.correction_type = number(correction)
    member.layout = PackedLinearUniformProto.PackedLayout.Value(layout)
    return proto


def linear(storage: str, scale: float, *, zero_point: int = 0, data: str = "FLOAT16") -> QuantizationProto:
    """A static ``linear`` declaration."""
    proto = QuantizationProto(data_type=number(data))
    member = proto.linear
    member.storage_type = number(storage)
    member.bits = BITS[storage]
    member.symmetric = storage in SIGNED
    member.scale_float = scale
    member.zero_point = zero_point
    return proto


def cast(data: str = "FLOAT16") -> QuantizationProto:
    """A ``cast`` declaration."""
    proto = QuantizationProto(data_type=number(data))
    proto.cast.storage_type = T.FLOAT8E4M3FN
    return proto


def identity(data: str = "FLOAT16") -> QuantizationProto:
    """An ``identity`` declaration."""
    proto = QuantizationProto(data_type=number(data))
    proto.identity.SetInParent()
    return proto


def codebook() -> QuantizationProto:
    """A ``codebook`` declaration, which version 1 does not accept."""
    proto = QuantizationProto(data_type=T.FLOAT16)
    proto.codebook.scale_float = 1.0
    return proto


def number(name: str) -> int:
    """The number of an element type."""
    return T.DataType.Value(name)


def name_of(elem_type: int) -> str:
    """The name of an element type."""
    names: dict[int, str] = {value: name for name, value in T.DataType.items()}
    return names[elem_type]


def scales(storage: str) -> tuple[str, ...]:
    """The scale types of a storage type."""
    extra = {"FLOAT4E2M1": ("FLOAT8E4M3FN", "FLOAT8E8M0"), "FLOAT8E4M3FN": ("FLOAT8E8M0",)}
    return (*DECODED, *extra.get(storage, ()))


def _every_packed(block: int) -> Iterator[tuple[str, QuantizationProto]]:
    for storage, data, layout in itertools.product(BITS, DECODED, LAYOUTS):
        for scale in scales(storage):
            terms: list[tuple[str, bool, str]] = [("", False, "")]
            if storage in UNSIGNED:
                terms = [("zero", True, ""), *((f"+{name}", False, name) for name in DECODED)]
            for label, zero_point, correction in terms:
                name = f"{storage}-{scale}{label}-{data}-{layout[0]}"
                yield (
                    name,
                    packed(
                        storage,
                        scale,
                        block=block,
                        zero_point=zero_point,
                        correction=correction,
                        layout=layout,
                        data=data,
                    ),
                )


#: Every ``packed_linear`` declaration with groups of 32, by name.
PACKED: Final[Mapping[str, QuantizationProto]] = dict(_every_packed(32))
#: One of each other kind and decoded type.
OTHERS: Final[Mapping[str, QuantizationProto]] = {
    **{
        f"linear-{storage}-{data}": linear(storage, 0.0625, data=data)
        for storage in {**SIGNED, **UNSIGNED}
        for data in DECODED
    },
    **{f"cast-{data}": cast(data) for data in DECODED},
    **{f"identity-{data}": identity(data) for data in DECODED},
}
ALL: Final[Mapping[str, QuantizationProto]] = {**PACKED, **OTHERS}


def dtype(data: str) -> np.dtype[Any]:
    """The NumPy dtype of an element type."""
    kinds: dict[str, np.dtype[Any]] = {
        "FLOAT": np.dtype(np.float32),
        "FLOAT16": np.dtype(np.float16),
        "BFLOAT16": np.dtype(ml_dtypes.bfloat16),
    }
    return kinds[data]


def hostile(data: str, size: int, seed: int, count: int) -> NDArray[Any]:
    """Groups [count, size] that codecs get wrong: every magnitude, ties, zeros of both signs, cancellation, NaN."""
    kind = dtype(data)
    random = np.random.default_rng(seed)
    unsigned = np.dtype(f"u{kind.itemsize}")
    groups = np.empty((count, size), kind)
    with np.errstate(all="ignore"):
        for group in groups:
            scale = np.float32(2.0) ** np.float32(random.uniform(-150, 128))
            match random.integers(10):
                case 0:  # any bits
                    group[:] = random.integers(0, 1 << 8 * kind.itemsize, size, unsigned).view(kind)
                case 1 | 2:  # one magnitude
                    group[:] = (random.standard_normal(size) * scale).astype(kind)
                case 3:  # ties: few steps of one size
                    group[:] = (random.integers(-30, 31, size) * np.float32(0.5) * scale).astype(kind)
                case 4:  # constant, but for the last bits
                    base = np.full(size, scale, np.float32).astype(kind).view(unsigned)
                    group[:] = (base + random.integers(0, 3, size, unsigned)).view(kind)
                case 5:  # one element much larger than the others
                    group[:] = (random.standard_normal(size) * scale).astype(kind)
                    group[random.integers(size)] = np.float32(random.choice([6e4, -3e38, 3.4e38, 1e30]))
                case 6:  # zeros of both signs, sometimes with one subnormal number
                    group[:] = random.choice([0.0, -0.0], size).astype(kind)
                    if random.integers(2):
                        group[random.integers(size)] = np.asarray(1, unsigned).view(kind)
                case 7:  # every element at the ends of the type
                    largest = np.asarray(LARGEST[data], np.float32).astype(kind)
                    group[:] = random.choice([-1, 1], size).astype(kind) * largest
                case 8:  # something that is not finite
                    group[:] = random.standard_normal(size).astype(kind)
                    group[random.integers(size)] = random.choice([np.nan, np.inf, -np.inf])
                case _:  # ordinary activations
                    group[:] = random.standard_normal(size).astype(kind)
    return groups
