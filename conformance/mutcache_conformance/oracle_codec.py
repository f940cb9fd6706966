"""The page codecs, written from the specification group by group: canonical encoding, decoding, error bound, layout.

Slow, exact, and without a line in common with the reference. A codec divides a page, in row-major order, into groups of
a fixed number of elements that own whole bytes of the payload; of the codecs without scales a group is one element, or
the few that share a byte.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from onnx import TensorProto

from mutcache.proto.onnx_ml import PackedLinearUniformProto, QuantizationProto
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.oracle_floats import (
    BFLOAT16,
    E2M1,
    E4M3,
    E8M0_BIAS,
    E8M0_NAN,
    FLOAT,
    FLOAT16,
    FloatType,
    product,
    quotient,
    total,
)

#: The types that pages of numbers decode to.
DATA_TYPES: Final = {
    int(TensorProto.FLOAT): FLOAT,
    int(TensorProto.FLOAT16): FLOAT16,
    int(TensorProto.BFLOAT16): BFLOAT16,
}
_CODE_FLOATS: Final = {int(TensorProto.FLOAT8E4M3FN): E4M3, int(TensorProto.FLOAT4E2M1): E2M1}
_PARAMETER_FLOATS: Final = {**DATA_TYPES, int(TensorProto.FLOAT8E4M3FN): E4M3}
_SIGNED: Final = {int(TensorProto.INT8), int(TensorProto.INT4), int(TensorProto.INT2)}
#: Relative slack of the bound for operations that are rounded in float32.
_ROUNDING: Final = Fraction(1, 1 << 22)

Values = Sequence[float]


class Codec(ABC):
    """What a declaration says of the bytes of a page.

    Attributes:
        size: elements of a group.
        parts: bytes of a group in each section of the payload, in the order of the sections.
        data_type: the type of decoded elements, a TensorProto.DataType.
        interleaved: whether the sections of each group stand together.
    """

    size: int
    parts: tuple[int, ...]
    data_type: int
    interleaved = False

    def nbytes(self, dims: Sequence[int]) -> int:
        """Bytes of a page."""
        return self.groups(dims) * sum(self.parts)

    def groups(self, dims: Sequence[int]) -> int:
        """Groups of a page."""
        return math.prod(dims) // self.size

    def places(self, group: int, groups: int) -> list[tuple[int, int]]:
        """Where the sections of a group lie in the payload of a page with that many: (first byte, bytes)."""
        places, start = [], 0
        for part in self.parts:
            before = sum(self.parts) * group if self.interleaved else part * group
            places.append((start + before, part))
            start += part if self.interleaved else part * groups
        return places

    @abstractmethod
    def encode(self, values: Values) -> bytes:
        """The sections of a group, one after the other, as the canonical encoder makes them."""

    @abstractmethod
    def decode(self, group: bytes) -> Values:
        """The elements of a group, exactly as the decoding formula gives them, rounded to the data type."""

    @abstractmethod
    def bounds(self, values: Values, slack: Fraction, decoded: Values) -> list[Fraction] | None:
        """How far each decoded element may be from the one that was encoded; None if nothing is promised.

        Args:
            values: what was encoded, finite, each known up to ``slack``.
            slack: 0 for rows that a run writes; more if they were decoded first.
            decoded: what was stored, decoded.
        """


def codec_of(declaration: QuantizationProto) -> Codec:
    """The codec of a declaration that the specification accepts."""
    return _codec(declaration.SerializeToString(deterministic=True))


@functools.cache
def _codec(data: bytes) -> Codec:
    declaration = QuantizationProto.FromString(data)
    match declaration.WhichOneof("kind"):
        case "packed_linear":
            return PackedLinear(declaration.data_type, declaration.packed_linear)
        case "linear":
            one = declaration.linear
            return Linear(declaration.data_type, one.storage_type, one.bits, one.scale_float, one.zero_point)
        case "cast":
            return Cast(declaration.data_type)
        case "identity":
            return Identity(declaration.data_type)
        case kind:
            raise ValueError(f"version 1 has no quantization {kind}")


class PackedLinear(Codec):
    """Groups along the last axis, each with a scale and at most one of a zero point and a correction."""

    def __init__(self, data_type: int, declaration: PackedLinearUniformProto) -> None:
        self.data_type = data_type
        self.size = declaration.block_size
        self.interleaved = declaration.layout == PackedLinearUniformProto.INTERLEAVED
        self.bits = declaration.bits
        self._storage = declaration.storage_type
        self._float = _CODE_FLOATS.get(declaration.storage_type)
        self._scale = _Parameter.of(declaration.scale_type)
        self._has_zero_point = declaration.zero_point_type != TensorProto.UNDEFINED
        has_correction = declaration.correction_type != TensorProto.UNDEFINED
        self._correction = _Parameter.of(declaration.correction_type) if has_correction else None
        sections = [self.size * self.bits // 8, self._scale.nbytes]
        sections += [1] * self._has_zero_point
        sections += [self._correction.nbytes] if self._correction else []
        self.parts = tuple(sections)

    @property
    def _largest_code(self) -> int:
        """The largest code of unsigned storage."""
        return (1 << self.bits) - 1

    @property
    def _largest(self) -> float:
        """The largest magnitude that a code of symmetric storage stands for."""
        return self._float.largest if self._float else float((1 << (self.bits - 1)) - 1)

    def parameters(self, low: float, high: float) -> tuple[float, float, float]:
        """The stored scale, the stored correction and the reciprocal of the scale, of a group from low to high."""
        correction = 0.0
        if self._correction is not None:
            correction = self._correction.stored(low)
            scale = quotient(max(0.0, total(high, -correction)), float(self._largest_code))
        elif self._has_zero_point:
            scale = quotient(total(max(high, 0.0), -min(low, 0.0)), float(self._largest_code))
        else:
            amax = max(abs(low), abs(high))
            if self._scale.is_power:
                return _power_of_two(amax, self._float or E4M3)
            scale = quotient(amax, self._largest)
        scale = self._scale.stored(scale)
        reciprocal = quotient(1.0, scale) if scale > 0 else 0.0
        if math.isinf(reciprocal):
            scale = reciprocal = 0.0
        return scale, correction, reciprocal

    def encode(self, values: Values) -> bytes:
        """See Codec."""
        if not all(map(math.isfinite, values)):
            rest = sum(self.parts) - self.parts[0] - self._scale.nbytes
            return bytes(self.parts[0]) + self._scale.nan + bytes(rest)
        scale, correction, reciprocal = self.parameters(min(values), max(values))
        zero_point = 0
        if self._has_zero_point:
            zero_point = _clamped(product(-min(*values, 0.0), reciprocal), 0, 0, self._largest_code)
        codes = [self._code(value, scale, reciprocal, zero_point, correction) for value in values]
        data = _packed(codes, self.bits) + self._scale.bytes_of(scale)
        if self._has_zero_point:
            data += bytes([zero_point])
        return data + (self._correction.bytes_of(correction) if self._correction else b"")

    def _code(self, value: float, scale: float, reciprocal: float, zero_point: int, correction: float) -> int:
        if scale == 0:
            return 0
        if self._float is not None:
            return self._float.encode(self._float.saturated(product(value, reciprocal)))
        if self._correction is not None:
            return _clamped(product(total(value, -correction), reciprocal), 0, 0, self._largest_code)
        if self._has_zero_point:
            return _clamped(product(value, reciprocal), zero_point, 0, self._largest_code)
        largest = int(self._largest)
        return _clamped(product(value, reciprocal), 0, -largest, largest)

    def decode(self, group: bytes) -> Values:
        """See Codec."""
        codes = _unpacked(group[: self.parts[0]], self.bits)
        at = self.parts[0] + self._scale.nbytes
        scale = self._scale.value(group[self.parts[0] : at])
        zero_point = group[at] if self._has_zero_point else 0
        correction = self._correction.value(group[at:]) if self._correction else None
        is_finite = math.isfinite(scale) and (correction is None or math.isfinite(correction))
        decoded = []
        for code in codes:
            value = product(self._number(code) - zero_point if self._has_zero_point else self._number(code), scale)
            if correction is not None:
                value = total(value, correction)
            decoded.append(_result(value, is_finite, self.data_type))
        return decoded

    def _number(self, code: int) -> float:
        if self._float is not None:
            return self._float.decode(code)
        return float(_signed(code, self.bits) if self._storage in _SIGNED else code)

    def bounds(self, values: Values, slack: Fraction, decoded: Values) -> list[Fraction] | None:
        """See Codec. What is known up to ``slack`` is bounded between the narrowest and the widest group it can be."""
        low, high = Fraction(min(values)), Fraction(max(values))
        if high - low > Fraction(FLOAT.largest):
            return None
        scale, correction = self._scale_of(low - slack, high + slack)
        narrow, _ = self._scale_of(*self._narrowed(low, high, slack))
        excess = self._excess(low - slack, high + slack, narrow, correction)
        reach = (1 << self.bits) - 1
        found = []
        for value, result in zip(values, decoded, strict=True):
            step = scale
            if self._float is not None and scale:
                place = min((abs(Fraction(value)) + slack) / narrow, Fraction(self._float.largest)) if narrow else 0
                step = scale * self._float.spacing(Fraction(place))
            rounding = _ROUNDING * (abs(Fraction(value)) + abs(correction) + reach * scale)
            found.append(slack + step / 2 + excess + _half_ulp(self.data_type, value, result) + rounding)
        return found

    def _scale_of(self, low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
        scale, correction, _ = self.parameters(FLOAT.saturated(low), FLOAT.saturated(high))
        return Fraction(scale), Fraction(correction)

    def _narrowed(self, low: Fraction, high: Fraction, slack: Fraction) -> tuple[Fraction, Fraction]:
        """The range with the smallest scale that the group may have."""
        zero = Fraction(0)
        if self._correction is not None:
            return low + slack, max(low + slack, high - slack)
        if self._has_zero_point:
            return min(low + slack, zero), max(high - slack, zero)
        return zero, max(max(abs(low), abs(high)) - slack, zero)

    def _excess(self, low: Fraction, high: Fraction, scale: Fraction, correction: Fraction) -> Fraction:
        """How far the elements lie outside of what the codes reach."""
        reach = ((1 << self.bits) - 1) * scale
        if self._correction is not None:
            return max(Fraction(0), correction - low) + max(Fraction(0), high - correction - reach)
        if self._has_zero_point:
            return max(Fraction(0), max(high, Fraction(0)) - min(low, Fraction(0)) - reach)
        return max(Fraction(0), max(abs(low), abs(high)) - Fraction(self._largest) * scale)


class Linear(Codec):
    """One scale and one zero point for all pages."""

    def __init__(self, data_type: int, storage_type: int, bits: int, scale: float, zero_point: int) -> None:
        self.data_type = data_type
        self.size, self.parts = max(1, 8 // bits), (1,)
        self._bits, self._scale, self._zero_point = bits, scale, zero_point
        self._is_signed = storage_type in _SIGNED
        self._low = -(1 << (bits - 1)) if self._is_signed else 0
        self._high = self._low + (1 << bits) - 1

    def encode(self, values: Values) -> bytes:
        """See Codec."""
        reciprocal = quotient(1.0, self._scale)
        codes = [
            0 if math.isnan(value) else _clamped(product(value, reciprocal), self._zero_point, self._low, self._high)
            for value in values
        ]
        return _packed(codes, self._bits)

    def decode(self, group: bytes) -> Values:
        """See Codec."""
        codes = _unpacked(group, self._bits)
        numbers = [_signed(code, self._bits) if self._is_signed else code for code in codes]
        return [
            _result(product(float(number - self._zero_point), self._scale), True, self.data_type) for number in numbers
        ]

    def bounds(self, values: Values, slack: Fraction, decoded: Values) -> list[Fraction]:
        """See Codec."""
        scale = Fraction(self._scale)
        low, high = ((code - self._zero_point) * scale for code in (self._low, self._high))
        found = []
        for value, result in zip(values, decoded, strict=True):
            exact = Fraction(value)
            excess = max(Fraction(0), low - exact, exact - high)
            rounding = _ROUNDING * (abs(exact) + ((1 << self._bits) - 1) * scale)
            found.append(2 * slack + scale / 2 + excess + _half_ulp(self.data_type, value, result) + rounding)
        return found


class Cast(Codec):
    """FLOAT8E4M3FN codes without a scale."""

    size, parts = 1, (1,)

    def __init__(self, data_type: int) -> None:
        self.data_type = data_type

    def encode(self, values: Values) -> bytes:
        """See Codec."""
        return bytes(E4M3.encode(E4M3.saturated(value)) for value in values)

    def decode(self, group: bytes) -> Values:
        """See Codec."""
        return [E4M3.decode(code) for code in group]

    def bounds(self, values: Values, slack: Fraction, decoded: Values) -> list[Fraction]:
        """See Codec."""
        largest = Fraction(E4M3.largest)
        found = []
        for value, result in zip(values, decoded, strict=True):
            magnitude = abs(Fraction(value))
            step = E4M3.spacing(min(magnitude + slack, largest))
            excess = max(Fraction(0), magnitude - largest)
            found.append(2 * slack + step / 2 + excess + _half_ulp(self.data_type, value, result))
        return found


class Identity(Codec):
    """The elements themselves, of any type of whole bytes; only those of numbers have values."""

    size = 1

    def __init__(self, data_type: int) -> None:
        self.data_type = data_type
        self.parts = (dtype_of(data_type).itemsize,)

    def encode(self, values: Values) -> bytes:
        """See Codec."""
        return b"".join(bytes_of(value, self.data_type) for value in values)

    def decode(self, group: bytes) -> Values:
        """See Codec."""
        return [DATA_TYPES[self.data_type].decode(int.from_bytes(group, "little"))]

    def bounds(self, values: Values, slack: Fraction, decoded: Values) -> list[Fraction]:  # noqa: ARG002 - see Codec
        """See Codec."""
        return [slack] * len(values)


def bytes_of(value: float, data_type: int) -> bytes:
    """The bytes of a number of a decoded type."""
    kind = DATA_TYPES[data_type]
    return kind.encode(value).to_bytes(kind.nbytes, "little")


def ulp(value: float, data_type: int) -> Fraction:
    """One unit in the last place of a finite number of a decoded type."""
    return DATA_TYPES[data_type].spacing(value)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """How a scale or a correction is stored; E8M0 holds nothing but an exponent."""

    kind: FloatType | None

    @classmethod
    def of(cls, data_type: int) -> _Parameter:
        return cls(None if data_type == TensorProto.FLOAT8E8M0 else _PARAMETER_FLOATS[data_type])

    @property
    def is_power(self) -> bool:
        return self.kind is None

    @property
    def nbytes(self) -> int:
        return 1 if self.kind is None else self.kind.nbytes

    @property
    def nan(self) -> bytes:
        return bytes([E8M0_NAN]) if self.kind is None else self.bytes_of(math.nan)

    def stored(self, value: float) -> float:
        """The number that is stored for ``value``; zeros are positive."""
        assert self.kind is not None  # powers of two are chosen, not rounded
        return self.kind.saturated(value) + 0.0

    def bytes_of(self, value: float) -> bytes:
        if self.kind is None:
            return bytes([math.frexp(value)[1] - 1 + E8M0_BIAS])
        return self.kind.encode(value).to_bytes(self.kind.nbytes, "little")

    def value(self, data: bytes) -> float:
        code = int.from_bytes(data, "little")
        if self.kind is not None:
            return self.kind.decode(code)
        return math.nan if code == E8M0_NAN else math.ldexp(1.0, code - E8M0_BIAS)


def _power_of_two(amax: float, storage: FloatType) -> tuple[float, float, float]:
    """The parameters of a group with an E8M0 scale."""
    field = FLOAT.encode(amax) >> FLOAT.mantissa
    largest_exponent = math.frexp(storage.largest)[1] - 1
    scale = math.ldexp(1.0, min(max(field - largest_exponent, 0), 254) - E8M0_BIAS)
    return scale, 0.0, quotient(1.0, scale)


def _half_ulp(data_type: int, value: float, decoded: float) -> Fraction:
    return DATA_TYPES[data_type].spacing(max(abs(value), abs(decoded))) / 2


def _result(value: float, clamps: bool, data_type: int) -> float:
    kind = DATA_TYPES[data_type]
    if clamps and not math.isnan(value):
        value = math.copysign(min(abs(value), kind.largest), value)
    return kind.rounded(value)


def _clamped(value: float, offset: int, low: int, high: int) -> int:
    """``value`` rounded half to even, plus the offset, in the closed range."""
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(round(value) + offset, low), high)


def _packed(codes: Sequence[int], bits: int) -> bytes:
    """Codes in the low-order bits first; negative ones in two's complement."""
    number = sum((code & ((1 << bits) - 1)) << (bits * at) for at, code in enumerate(codes))
    return number.to_bytes(len(codes) * bits // 8, "little")


def _unpacked(data: bytes, bits: int) -> list[int]:
    number = int.from_bytes(data, "little")
    return [number >> (bits * at) & ((1 << bits) - 1) for at in range(len(data) * 8 // bits)]


def _signed(code: int, bits: int) -> int:
    return code - (1 << bits) if code >> (bits - 1) else code
