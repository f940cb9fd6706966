"""What single places say of a value's type, and how two such facts compare."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mutcache.model import Graph, MapType, Node, OtherType, QuantizedTensorType, SequenceType, TensorType, ValueType
from mutcache.proto.onnx_ml import TensorProto
from mutcache.symbols import Size, Symbol

_ELEM_TYPES: dict[int, str] = {number: name for name, number in TensorProto.DataType.items()}


@dataclass(frozen=True, slots=True)
class SymTensor:
    """A tensor with symbolic dimensions; of a container, the logical type that all its pages share.

    Attributes:
        kind: ``tensor``, or in words what contains it.
        elem_type: 0 when it is unknown.
        dims: None when even the rank is unknown.
        whole: the type that it was read from.
    """

    kind: str
    elem_type: int
    dims: tuple[Size, ...] | None
    whole: ValueType = field(compare=False)

    @property
    def value_type(self) -> ValueType:
        """The whole type with what is known of the tensor; symbols by their names."""
        dims = None if self.dims is None else tuple(str(dim) if isinstance(dim, Symbol) else dim for dim in self.dims)
        return refine(self.whole, TensorType(self.elem_type, dims))

    def __str__(self) -> str:
        return show_type(self.kind, self.elem_type, self.dims)


@dataclass(frozen=True, slots=True)
class Fact:
    """What one place says of a value of ``graph``; ``where`` names the place and the value for people."""

    name: str
    graph: Graph
    where: str
    type: SymTensor

    def __str__(self) -> str:
        return f"{self.where} says {self.type}"


class Aspect(enum.StrEnum):
    """In what two facts differ."""

    TYPE = "type"
    RANK = "rank"
    SHAPE = "shape"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two facts of one class that cannot both hold.

    Attributes:
        root: the name of the class's root.
        known: what the places before say.
        other: what does not fit it.
        aspect: in what the two differ.
        node: the node that makes ``other`` a member of the class, if one does.
        axis: the dimension in which two shapes differ.
        reason: where symbols have their sizes from.
    """

    root: str
    known: Fact
    other: Fact
    aspect: Aspect
    node: Node | None = None
    axis: int | None = None
    reason: str = ""


def sym_tensor(value_type: ValueType, scope: int) -> SymTensor:
    """The tensor in ``value_type``, its symbols those of the graph number ``scope``."""
    kind = ""
    inner: ValueType | None = value_type
    while isinstance(inner, SequenceType | MapType):
        if isinstance(inner, SequenceType):
            kind += "sequence of "
            inner = inner.element
        else:
            kind += f"map from {show_elem_type(inner.key_type)} to "
            inner = inner.value
    if isinstance(inner, TensorType | QuantizedTensorType):
        kind += "tensor" if isinstance(inner, TensorType) else "quantized tensor"
        dims = None if inner.dims is None else tuple(_size(dim, scope) for dim in inner.dims)
        return SymTensor(kind, inner.elem_type, dims, value_type)
    return SymTensor(kind + (inner.kind if isinstance(inner, OtherType) else "nothing"), 0, None, value_type)


def _size(dim: int | str | None, scope: int) -> Size:
    if isinstance(dim, str):
        return Symbol(dim, scope)
    return None if dim is None or dim < 0 else dim  # a negative size is a way to say that nothing is known


def refine(value_type: ValueType, tensor: TensorType) -> ValueType:
    """``value_type`` with the element type and the dimensions of ``tensor`` put in, however deep inside."""
    if isinstance(value_type, TensorType):
        return tensor
    if isinstance(value_type, QuantizedTensorType):
        return replace(value_type, elem_type=tensor.elem_type, dims=tensor.dims)
    if isinstance(value_type, SequenceType) and value_type.element is not None:
        return SequenceType(refine(value_type.element, tensor))
    if isinstance(value_type, MapType) and value_type.value is not None:
        return MapType(value_type.key_type, refine(value_type.value, tensor))
    return value_type


def agree(one: SymTensor, other: SymTensor) -> bool:
    """Whether both can hold, whatever the symbols stand for."""
    if one.kind != other.kind or (one.elem_type and other.elem_type and one.elem_type != other.elem_type):
        return False
    if one.dims is None or other.dims is None:
        return True
    return len(one.dims) == len(other.dims) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(one.dims, other.dims, strict=True)
    )


def combine(known: Fact, other: Fact) -> Fact:
    """The most that two facts which agree say together; it names both places if both contribute."""
    merged = sharpen(known.type, other.type)
    if merged == known.type:
        return known
    return Fact(known.name, known.graph, f"{other.where} with {known.where}", merged)


def sharpen(known: SymTensor, other: SymTensor) -> SymTensor:
    """``known`` with what ``other`` says where it says nothing, and sizes in place of symbols."""
    dims = other.dims if known.dims is None else known.dims
    if known.dims is not None and other.dims is not None and len(known.dims) == len(other.dims):
        dims = tuple(map(_sharper, known.dims, other.dims))
    return replace(known, elem_type=known.elem_type or other.elem_type, dims=dims)


def _sharper(known: Size, other: Size) -> Size:
    if known is None or (isinstance(known, Symbol) and isinstance(other, int)):
        return other
    return known


def is_vaguer(less: SymTensor, more: SymTensor) -> bool:
    """Whether ``more`` says more: an element type, a rank, a size, or a symbol where nothing was."""
    if more.elem_type and not less.elem_type:
        return True
    if more.dims is None:
        return False
    return less.dims is None or any(
        ours is not None and (theirs is None or (isinstance(ours, int) and not isinstance(theirs, int)))
        for theirs, ours in zip(less.dims, more.dims, strict=False)
    )


def show_elem_type(elem_type: int) -> str:
    """The name of an element type, or its number when there is none."""
    return _ELEM_TYPES.get(elem_type, f"element type {elem_type}")


def show_type(kind: str, elem_type: int, dims: Sequence[object] | None) -> str:
    """A type for people: ``FLOAT16[2, batch, ?]``."""
    shape = "" if dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
    name = show_elem_type(elem_type) if elem_type else "?"
    return f"{name}{shape}" if kind == "tensor" else f"{kind} {name}{shape}"
