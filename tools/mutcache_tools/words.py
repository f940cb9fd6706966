"""Types, quantizations and attributes in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from onnx import numpy_helper

from mutcache.facts import show_elem_type, show_type
from mutcache.model import MapType, OtherType, QuantizedTensorType, SequenceType, TensorType, ValueType
from mutcache.proto.onnx_ml import (
    AttributeProto,
    LinearUniformProto,
    PackedLinearUniformProto,
    QuantizationProto,
    TensorProto,
)

#: Longer texts and lists inside attributes are cut.
_MAX_TEXT: Final = 40
_MAX_ITEMS: Final = 8


def type_words(value_type: ValueType | None, quantizations: Sequence[QuantizationProto] = ()) -> str:
    """A type: ``FLOAT16[2, batch]``, ``sequence of FLOAT16[2, 4] pages (0 INT4, 1 FLOAT8E4M3FN)``, "" if unknown."""
    if isinstance(value_type, TensorType):
        return show_type("tensor", value_type.elem_type, value_type.dims)
    if isinstance(value_type, SequenceType):
        return f"sequence of {type_words(value_type.element, quantizations) or '?'}"
    if isinstance(value_type, MapType):
        inner = type_words(value_type.value, quantizations) or "?"
        return f"map from {show_elem_type(value_type.key_type)} to {inner}"
    if isinstance(value_type, QuantizedTensorType):
        pages = show_type("tensor", value_type.elem_type, value_type.dims)
        allowed = ", ".join(_allowed(index, quantizations) for index in value_type.allowed)
        return f"{pages} pages ({allowed or 'of any type'})"
    return value_type.kind if isinstance(value_type, OtherType) else ""


def _allowed(index: int, quantizations: Sequence[QuantizationProto]) -> str:
    if not 0 <= index < len(quantizations):
        return f"{index} undeclared"
    return f"{index} {storage_words(quantizations[index])}"


def storage_words(quantization: QuantizationProto) -> str:
    """What the codes of a page are: ``INT4``."""
    kind = quantization.WhichOneof("kind")
    if kind in ("packed_linear", "linear", "cast"):
        return show_elem_type(getattr(quantization, kind).storage_type)
    if kind == "identity":
        return show_elem_type(quantization.data_type)
    return kind or "unknown"


def quantization_words(quantization: QuantizationProto) -> str:
    """A declaration: ``INT4 in blocks of 32, scale FLOAT16``."""
    kind = quantization.WhichOneof("kind")
    storage = storage_words(quantization)
    if kind == "identity":
        return f"{storage} as it is"
    if kind == "cast":
        return f"cast to {storage}"
    if kind == "linear":
        return ", ".join([f"{storage} whole page", *_linear(quantization.linear)])
    if kind == "packed_linear":
        return ", ".join(_packed(storage, quantization.packed_linear))
    if kind == "codebook":
        return f"codebook of {len(quantization.codebook.codebook)}"
    return "unknown kind"


def _linear(linear: LinearUniformProto) -> Iterable[str]:
    scale = linear.WhichOneof("scale")
    yield f"scale {getattr(linear, scale):g}" if scale else "no scale"
    if linear.zero_point:
        yield f"zero point {linear.zero_point}"


def _packed(storage: str, packed: PackedLinearUniformProto) -> Iterable[str]:
    yield f"{storage} in blocks of {packed.block_size}"
    for what in ("scale", "zero_point", "correction"):
        elem_type = getattr(packed, f"{what}_type")
        if elem_type:
            yield f"{what.replace('_', ' ')} {show_elem_type(elem_type)}"
    if packed.layout == PackedLinearUniformProto.INTERLEAVED:
        yield "interleaved"


def attribute_words(attribute: AttributeProto) -> str:
    """The value of an attribute that is no graph: ``2``, ``"linear"``, ``[1, 2]``, ``INT64[3]``."""
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    kinds = AttributeProto
    match attribute.type:
        case kinds.INT:
            return str(attribute.i)
        case kinds.FLOAT:
            return f"{attribute.f:g}"
        case kinds.STRING:
            return _string(attribute.s)
        case kinds.TENSOR:
            return tensor_words(attribute.t)
        case kinds.INTS:
            return _items(map(str, attribute.ints))
        case kinds.FLOATS:
            return _items(f"{number:g}" for number in attribute.floats)
        case kinds.STRINGS:
            return _items(map(_string, attribute.strings))
        case kinds.TENSORS:
            return _items(map(tensor_words, attribute.tensors))
    return AttributeProto.AttributeType.Name(attribute.type).lower()


def tensor_words(tensor: TensorProto) -> str:
    """A tensor: a number as it is, short lists of integers too, anything else by its type."""
    described = show_type("tensor", tensor.data_type, tuple(tensor.dims))
    small = tensor.data_type in (TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.BOOL)
    if (
        not small
        or tensor.data_location == TensorProto.EXTERNAL
        or len(tensor.dims) > 1
        or max(tensor.dims, default=0) > 4
    ):
        return described
    try:
        array = numpy_helper.to_array(cast("Any", tensor))
    except (ValueError, TypeError):  # its bytes do not fit its dims: `mutcache check` says so
        return described
    return str(array.tolist())


def _items(texts: Iterable[str]) -> str:
    shown = list(texts)
    cut = [*shown[:_MAX_ITEMS], "..."] if len(shown) > _MAX_ITEMS else shown
    return f"[{', '.join(cut)}]"


def _string(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}...")


def byte_words(count: int | None) -> str:
    """A number of bytes: ``816 B``, ``12.5 KiB``, ``?`` if it is unknown."""
    if count is None:
        return "?"
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 6)
    size = count / 1024**power
    if size >= 1023.5 and power < 6:
        size, power = size / 1024, power + 1
    unit = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[power]
    return f"{size:.3g} {unit}" if size < 99.95 else f"{size:.0f} {unit}"


def printable(text: str) -> str:
    """The text as it is, or quoted if it would do something to a terminal."""
    return text if text.isprintable() else repr(text)
