"""What single places say of a value's type, and how two such facts compare."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mutcache.model import (
    Dim,
    MapType,
    OtherType,
    QuantizedTensorType,
    SequenceType,
    TensorType,
    ValueType,
)
from mutcache.proto.onnx_ml import TensorProto

_ELEM_TYPES: dict[int, str] = {number: name for name, number in TensorProto.DataType.items()}


@dataclass(frozen=True, slots=True)
class Fact:
    """What one place says of a value: ``kind`` in words, 0 and None where it says nothing."""

    name: str
    place: str
    kind: str
    elem_type: int
    dims: tuple[Dim, ...] | None

    def __str__(self) -> str:
        return f"{self.place} of {self.name!r} says {show_type(self.kind, self.elem_type, self.dims)}"


class Aspect(enum.StrEnum):
    """In what two facts differ."""

    TYPE = "type"
    RANK = "rank"
    SHAPE = "shape"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two facts of one class that cannot both hold; ``axis`` and ``reason`` say more about two shapes."""

    root: str
    known: Fact
    other: Fact
    aspect: Aspect
    axis: int | None = None
    reason: str = ""


class Symbols:
    """Symbolic dimensions that are known to be equal, and the sizes they are known to have."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._size: dict[str, tuple[int, str]] = {}

    def _find(self, symbol: str) -> str:
        path = []
        while symbol in self._parent:
            path.append(symbol)
            symbol = self._parent[symbol]
        for passed in path:
            self._parent[passed] = symbol
        return symbol

    def resolve(self, dim: Dim) -> Dim:
        """The size of ``dim`` when it is known, else the symbol that stands for all symbols equal to it."""
        if not isinstance(dim, str):
            return dim
        representative = self._find(dim)
        return self._size[representative][0] if representative in self._size else representative

    def reason(self, dim: Dim) -> str:
        """Why a symbol has its size, or ""."""
        if not isinstance(dim, str):
            return ""
        size, reason = self._size.get(self._find(dim), (0, ""))
        return f"{dim} is {size} since {reason}" if reason else ""

    def unify(self, known: Dim, other: Dim, reason: str) -> bool:
        """Record that two dimensions are equal; False, and nothing recorded, when they are not."""
        known, other = self.resolve(known), self.resolve(other)
        if known is None or other is None or known == other:
            return True
        if isinstance(known, str):
            if isinstance(other, int):
                self._size[known] = (other, reason)
            else:
                self._parent[known] = other
            return True
        if isinstance(other, str):
            self._size[other] = (known, reason)
            return True
        return False


def fact_of(name: str, place: str, value_type: ValueType) -> Fact:
    """The fact that ``place`` gives ``value_type`` to ``name``."""
    if isinstance(value_type, TensorType):
        return Fact(name, place, "tensor", value_type.elem_type, _dims(value_type.dims))
    kind = ""
    inner: ValueType | None = value_type
    while isinstance(inner, SequenceType | MapType):
        if isinstance(inner, SequenceType):
            kind += "sequence of "
            inner = inner.element
        else:
            kind += f"map from {show_elem_type(inner.key_type)} to "
            inner = inner.value
    if isinstance(inner, QuantizedTensorType):
        return Fact(name, place, f"{kind}quantized tensor", inner.elem_type, _dims(inner.dims))
    if isinstance(inner, TensorType):
        return Fact(name, place, f"{kind}tensor", inner.elem_type, _dims(inner.dims))
    return Fact(name, place, kind + (inner.kind if isinstance(inner, OtherType) else "nothing"), 0, None)


def _dims(dims: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """A negative size is a way to say that nothing is known."""
    return None if dims is None else tuple(None if isinstance(dim, int) and dim < 0 else dim for dim in dims)


def agree(one: Fact, other: Fact) -> bool:
    """Whether both can hold, whatever the symbols stand for."""
    if one.kind != other.kind or (one.elem_type and other.elem_type and one.elem_type != other.elem_type):
        return False
    if one.dims is None or other.dims is None:
        return True
    return len(one.dims) == len(other.dims) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(one.dims, other.dims, strict=True)
    )


def combine(known: Fact, other: Fact) -> Fact:
    """The most that two facts which agree say together; its place names both if both contribute."""
    dims = known.dims if other.dims is None else other.dims
    if known.dims is not None and other.dims is not None:
        dims = tuple(map(_sharper, known.dims, other.dims))
    elem_type = known.elem_type or other.elem_type
    if (elem_type, dims) == (known.elem_type, known.dims):
        return known
    return Fact(known.name, f"{other.place} of {other.name!r} with {known.place}", known.kind, elem_type, dims)


def _sharper(known: Dim, other: Dim) -> Dim:
    if known is None or (isinstance(known, str) and isinstance(other, int)):
        return other
    return known


def is_vaguer(fact: Fact, known: TensorType) -> bool:
    """Whether ``known`` says more: an element type, a rank or a size."""
    if known.elem_type and not fact.elem_type:
        return True
    if known.dims is None:
        return False
    return fact.dims is None or any(
        isinstance(theirs, int) and not isinstance(ours, int)
        for ours, theirs in zip(fact.dims, known.dims, strict=False)
    )


def show_elem_type(elem_type: int) -> str:
    """The name of an element type, or its number when there is none."""
    return _ELEM_TYPES.get(elem_type, f"element type {elem_type}")


def show_type(kind: str, elem_type: int, dims: tuple[Dim, ...] | None) -> str:
    """A type for people: ``FLOAT16[2, batch, ?]``."""
    shape = "" if dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
    name = show_elem_type(elem_type) if elem_type else "?"
    return f"{name}{shape}" if kind == "tensor" else f"{kind} {name}{shape}"
