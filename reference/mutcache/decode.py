"""From protobuf to the in-memory model, keeping on purpose what protobuf would drop in silence.

onnx.proto is proto2: a number that an enum does not define is moved to the message's unknown
fields, and the field reads as its default. So the unknown fields are read too.

A large model has perhaps one node in a hundred near a cache. So a graph is scanned once, by the
few fields that tell, and its nodes, value_info and subgraphs are decoded when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress, count
from operator import attrgetter
from typing import overload

from google.protobuf.unknown_fields import UnknownFieldSet

from mutcache.errors import DecodeError
from mutcache.model import (
    DOMAIN,
    Dim,
    Graph,
    MapType,
    Model,
    Node,
    OtherType,
    PortAlias,
    QuantizedTensorType,
    SequenceType,
    TensorType,
    Value,
    ValueType,
)
from mutcache.proto.onnx_ml import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorShapeProto,
    TypeProto,
    ValueAliasProto,
    ValueInfoProto,
)

_ACCESS_FIELD = ValueInfoProto.DESCRIPTOR.fields_by_name["access"].number
_KIND_FIELD = ValueAliasProto.DESCRIPTOR.fields_by_name["kind"].number
#: Types of attributes that may hold graphs. An absent type is UNDEFINED; one that does not fit what it holds is the
#: base check's finding.
_GRAPH_TYPES = frozenset({AttributeProto.UNDEFINED, AttributeProto.GRAPH, AttributeProto.GRAPHS})
#: Messages nest no deeper in bytes that protobuf accepts; one that was built in memory could.
_MAX_DEPTH = 100


def decode(proto: ModelProto) -> Model:
    """The in-memory model. What is wrong with a model, the rules say; what cannot be read is found when asked for.

    Raises:
        DecodeError: it is no model of this package, a name is not UTF-8, or the model nests deeper than protobuf reads
            (it was built in memory).
    """
    if not isinstance(proto, ModelProto):  # another package's ModelProto is a likely mistake
        raise DecodeError(
            f"expected a mutcache ModelProto, got {type(proto).__module__}.{type(proto).__qualname__}",
            hint="load it with mutcache.load, or convert a model of the onnx package with mutcache.from_onnx",
        )
    return Model(
        proto=proto,
        ir_version=proto.ir_version,
        opsets={opset.domain: opset.version for opset in proto.opset_import},
        graph=decode_graph(proto.graph, "main"),
        functions={(body.domain, body.name, body.overload): _decode_function(body) for body in proto.functions},
    )


def _text(value: str) -> str:
    """``value``, which protobuf returns as bytes when it is not UTF-8."""
    if not isinstance(value, str):
        raise DecodeError(f"a name of the model is not UTF-8: {value!r}")
    return value


def decode_graph(proto: GraphProto, path: str, depth: int = 0) -> Graph:
    """One graph. Its subgraphs are decoded when they are asked for.

    Raises:
        DecodeError: a name is not UTF-8, or the graph nests deeper than protobuf reads.
    """
    if depth > _MAX_DEPTH:
        raise DecodeError(f"the model nests subgraphs more than {_MAX_DEPTH} levels deep")
    protos = list(proto.node)  # kept, since protobuf makes a new Python object whenever it is asked for an element
    marked, nested = _scan_nodes(protos)
    inputs = tuple(map(decode_value, proto.input))
    outputs = tuple(map(decode_value, proto.output))
    return Graph(
        path=path,
        proto=proto,
        inputs=inputs,
        outputs=outputs,
        value_info=_LazyValues(proto.value_info),
        nodes=_LazyNodes(protos, path, depth),
        node_protos=protos,
        initializers={_text(tensor.name): tensor for tensor in proto.initializer},
        sparse_initializers={_text(tensor.values.name): tensor for tensor in proto.sparse_initializer},
        annotated=(*filter(_is_annotated, (*inputs, *outputs)), *_annotated(proto.value_info)),
        marked=marked,
        nested=nested,
    )


def _decode_function(proto: FunctionProto) -> Graph:
    path = f"{proto.domain}::{proto.name}" + (f":{proto.overload}" if proto.overload else "")
    protos = list(proto.node)
    marked, nested = _scan_nodes(protos)
    value_info = _LazyValues(proto.value_info)
    annotated = tuple(_annotated(proto.value_info))
    entries: dict[str, list[Value]] = {}
    for entry in annotated:
        entries.setdefault(entry.name, []).append(entry)

    def formal(name: str) -> Value:
        """A formal is its name alone, so every entry of that name speaks of it."""
        value = value_info.get(name, Value(_text(name)))
        for entry in entries.get(name, ()):
            value = replace(value, access=value.access or entry.access, alias_of=value.alias_of or entry.alias_of)
        return value

    return Graph(
        path=path,
        proto=proto,
        inputs=tuple(map(formal, proto.input)),
        outputs=tuple(map(formal, proto.output)),
        value_info=value_info,
        nodes=_LazyNodes(protos, path, 0),
        node_protos=protos,
        initializers={},
        sparse_initializers={},
        annotated=annotated,
        marked=marked,
        nested=nested,
    )


def _scan_nodes(protos: Sequence[NodeProto]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The indices of the marked and of the nested nodes. Most are neither: few fields are looked at."""
    marked = set(compress(count(), map(attrgetter("output_alias"), protos)))
    marked.update(index for index, domain in enumerate(map(attrgetter("domain"), protos)) if domain == DOMAIN)
    nested: list[int] = []
    for index, attributes in enumerate(map(attrgetter("attribute"), protos)):
        if attributes:
            for attribute in attributes:
                if attribute.type in _GRAPH_TYPES and (attribute.HasField("g") or attribute.graphs):
                    nested.append(index)
                    break
    return tuple(sorted(marked)), tuple(nested)


def _annotated(entries: Iterable[ValueInfoProto]) -> Iterator[Value]:
    """The entries that say more than the defaults, and only these decoded."""
    for entry in entries:
        if entry.access or entry.alias_of or len(UnknownFieldSet(entry)):
            value = decode_value(entry)
            if _is_annotated(value):
                yield value


def _is_annotated(value: Value) -> bool:
    """Whether an entry says more than the defaults; an access that this version does not define is no default."""
    return bool(value.access or value.alias_of or value.unknown_access is not None)


class _LazyNodes(Sequence[Node]):
    """The nodes of a graph, each decoded when first asked for."""

    def __init__(self, protos: Sequence[NodeProto], path: str, depth: int) -> None:
        self._protos = protos
        self._path = path
        self._depth = depth
        self._decoded: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._protos)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Node, ...]: ...
    def __getitem__(self, index: int | slice) -> Node | tuple[Node, ...]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        if index in self._decoded:
            return self._decoded[index]
        position = range(len(self))[index]
        node = self._decoded.get(position)
        if node is None:
            node = self._decoded[position] = _decode_node(self._protos[position], position, self._path, self._depth)
        return node


class _LazyValues(Mapping[str, Value]):
    """The value_info of a graph by name, each decoded when first asked for; the last of several entries counts."""

    def __init__(self, protos: Sequence[ValueInfoProto]) -> None:
        self._protos = protos

    @cached_property
    def _index(self) -> dict[str, int]:
        return {proto.name: position for position, proto in enumerate(self._protos)}

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, name: str) -> Value:
        return decode_value(self._protos[self._index[name]])


class _LazySubgraphs(Mapping[str, Graph]):
    """The graphs that a node holds, each decoded when first asked for."""

    def __init__(self, node: NodeProto, path: str, depth: int) -> None:
        self._path = path
        self._depth = depth
        self._protos: dict[str, GraphProto] = {}
        self._decoded: dict[str, Graph] = {}
        for attribute in node.attribute:
            if attribute.HasField("g"):
                self._protos[_text(attribute.name)] = attribute.g
            for position, graph in enumerate(attribute.graphs):
                self._protos[f"{attribute.name}[{position}]"] = graph

    def __len__(self) -> int:
        return len(self._protos)

    def __iter__(self) -> Iterator[str]:
        return iter(self._protos)

    def __getitem__(self, name: str) -> Graph:
        graph = self._decoded.get(name)
        if graph is None:
            graph = self._decoded[name] = decode_graph(self._protos[name], f"{self._path}.{name}", self._depth + 1)
        return graph


def _decode_node(proto: NodeProto, index: int, path: str, depth: int) -> Node:
    return Node(
        index=index,
        op_type=_text(proto.op_type),
        domain=_text(proto.domain),
        name=_text(proto.name),
        inputs=tuple(map(_text, proto.input)),
        outputs=tuple(map(_text, proto.output)),
        aliases=tuple(map(_decode_alias, proto.output_alias)),
        proto=proto,
        subgraphs=_LazySubgraphs(proto, f"{path}/{proto.name or f'{proto.op_type}_{index}'}", depth),
    )


def _decode_alias(proto: ValueAliasProto) -> PortAlias:
    unknown = _unknown_number(proto, _KIND_FIELD)
    return PortAlias(proto.output_index, proto.input_index, proto.kind if unknown is None else unknown)


def decode_value(proto: ValueInfoProto) -> Value:
    """One ValueInfoProto."""
    return Value(
        name=_text(proto.name),
        type=decode_type(proto.type) if proto.HasField("type") else None,
        access=proto.access,
        alias_of=_text(proto.alias_of),
        unknown_access=_unknown_number(proto, _ACCESS_FIELD),
    )


def _unknown_number(message: ValueInfoProto | ValueAliasProto, field_number: int) -> int | None:
    """The value of an unknown field of that number, whatever its wire type; -1 when it is no number."""
    unknowns = UnknownFieldSet(message)
    for index in range(len(unknowns)):
        unknown = unknowns[index]
        if unknown.field_number == field_number:
            if not isinstance(unknown.data, int):
                return -1
            return unknown.data - (1 << 64) if unknown.data >> 63 else unknown.data
    return None


def decode_type(proto: TypeProto, depth: int = 0) -> ValueType | None:
    """The value type, or None when the message names none.

    Raises:
        DecodeError: the type nests deeper than protobuf reads.
    """
    if depth > _MAX_DEPTH:
        raise DecodeError(f"a type of the model nests more than {_MAX_DEPTH} levels deep")
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind == "tensor_type":
        tensor = proto.tensor_type
        return TensorType(tensor.elem_type, _decode_shape(tensor.shape) if tensor.HasField("shape") else None)
    if kind == "quantized_tensor_type":
        quantized = proto.quantized_tensor_type
        dims = _decode_shape(quantized.shape) if quantized.HasField("shape") else None
        return QuantizedTensorType(quantized.elem_type, dims, tuple(quantized.allowed_quantized_type))
    if kind == "sequence_type":
        return SequenceType(decode_type(proto.sequence_type.elem_type, depth + 1))
    if kind == "map_type":
        return MapType(proto.map_type.key_type, decode_type(proto.map_type.value_type, depth + 1))
    return OtherType(kind)


def _decode_shape(proto: TensorShapeProto) -> tuple[Dim, ...]:
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else _text(dim.dim_param) or None  # an empty symbol says nothing
        for dim in proto.dim
    )
