"""The model as stock onnx can judge it: without the delta, and without the bytes of large initializers.

A large initializer of the main graph becomes an input of the same type: stock onnx then knows of it
what it needs, and gigabytes are neither copied nor parsed again. Its bytes are checked one tensor at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import Message

import mutcache.schemas  # noqa: F401  # registers the operators with stock onnx
from mutcache.model import (
    DOMAIN,
    DOMAIN_VERSION,
    STANDARD_DOMAINS,
    Dim,
    FunctionKey,
    Graph,
    MapType,
    Model,
    QuantizedTensorType,
    SequenceType,
    TensorType,
    ValueType,
)
from mutcache.proto import BASE_IR_VERSION, IR_VERSION
from mutcache.proto.onnx_ml import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from mutcache.scopes import walk
from mutcache.stock_pages import SUBSTITUTES, container_names, substitute

#: Elements from which on an initializer is large. Shapes and positions, whose values matter, are far smaller.
_LARGE: Final = 1 << 10
#: Bytes of large tensors up to which a model is copied with them, and then rid of them.
_COPIED: Final = 1 << 27


@dataclass(slots=True)
class Additions:
    """What stock onnx shall believe of one graph beyond what the graph says.

    Attributes:
        types: types of values, in place of those declared.
        sizes: symbols of the graph to their sizes.
        constants: values of names, captured ones and formal inputs among them.
        omitted: indices of updates and gathers whose operands it shall not judge.
    """

    types: dict[str, ValueType] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    omitted: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Whether there is anything to add."""
        return bool(self.types or self.sizes or self.constants or self.omitted)

    @property
    def signature(self) -> Hashable:
        """Equal for additions that say the same."""
        constants = ((name, tensor.SerializeToString()) for name, tensor in self.constants.items())
        return tuple(map(frozenset, (self.types.items(), self.sizes.items(), constants, self.omitted)))


def project(
    model: Model, additions: Mapping[Graph, Additions] | None = None, containers: frozenset[str] | None = None
) -> ModelProto:
    """A model of IR version 14 at most that is sound for stock onnx if and only if ``model`` is, the delta apart.

    ``containers`` is what `container_names` says of the model, if that is known already.
    Quantized containers, maps too, become sequences of tensors of their decoded type. The model is not modified.
    """
    proto = _without_large_tensors(model)
    if proto.ir_version == IR_VERSION:
        proto.ir_version = BASE_IR_VERSION
    proto.ClearField("quantizations")
    _strip_graph(proto.graph, (proto.graph.node[index] for index in sorted({*model.graph.marked, *model.graph.nested})))
    for function in proto.functions:
        _strip_function(function)
    if any(scope.marked for scope in walk(model.graph)):
        _import_domain(proto.opset_import)
    containers = container_names(model.proto) if containers is None else containers
    if substitute(proto.graph.node, containers):
        _import_domain(proto.opset_import)
    for function in proto.functions:
        if substitute(function.node, containers):
            _import_domain(function.opset_import)
    if len({entry.name for entry in proto.graph.value_info}) < len(proto.graph.value_info):
        # Of several entries of a name stock onnx takes the last: let it not matter how they are ordered.
        entries = sorted(proto.graph.value_info, key=lambda entry: (entry.name, entry.SerializeToString()))
        proto.graph.ClearField("value_info")
        proto.graph.value_info.extend(entries)
    if additions:
        add(proto.graph, model.graph, additions)
        numbers = {(function.domain, function.name, function.overload): i for i, function in enumerate(proto.functions)}
        for key, body in model.functions.items():
            add(proto.functions[numbers[key]], body, additions)
        if any(one.omitted for one in additions.values()):
            for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
                if not any(opset.domain in STANDARD_DOMAINS for opset in imports):
                    imports.add(domain="", version=1)
    return proto


def _without_large_tensors(model: Model) -> ModelProto:
    """A copy of the message in which the large initializers are inputs."""
    source, proto = model.proto, ModelProto()
    tensors = list(large_initializers(model))
    if not tensors:
        proto.CopyFrom(source)
        return proto
    large = frozenset(tensor.name for tensor in tensors)
    if sum(len(tensor.raw_data) for tensor in tensors) < _COPIED:
        proto.CopyFrom(source)  # as a whole: ten times as fast as node by node
        proto.graph.ClearField("initializer")
    else:
        _copy_except(source, proto, "graph")
        _copy_except(source.graph, proto.graph, "initializer")
    proto.graph.initializer.extend(tensor for tensor in source.graph.initializer if tensor.name not in large)
    _declare_inputs(proto.graph, tensors)
    return proto


def project_body(
    model: Model,
    key: FunctionKey,
    attributes: Mapping[str, AttributeProto],
    additions: Mapping[Graph, Additions],
    containers: frozenset[str] | None = None,
) -> ModelProto:
    """A function, as one call enters it, as a model of its own whose inputs have the types in ``additions``."""
    bodies = {(function.domain, function.name, function.overload): function for function in model.proto.functions}
    function, body = bodies[key], model.functions[key]
    proto = ModelProto(ir_version=BASE_IR_VERSION, opset_import=function.opset_import)
    pending = [function]
    while pending:  # the functions that it calls, at any depth
        for node in nodes_within(pending.pop().node):
            callee = bodies.pop((node.domain, node.op_type, node.overload), None)
            if callee is not None:
                proto.functions.append(callee)
                pending.append(callee)
    for callee in proto.functions:
        _strip_function(callee)
    if any(scope.marked for scope in walk(body)):
        _import_domain(proto.opset_import)
    own = additions.get(body, Additions())
    graph = proto.graph
    graph.name = function.name
    for name in function.input:
        if name in own.types and name not in own.constants:
            _set_stock_type(graph.input.add(name=name).type, own.types[name])
    graph.node.extend(function.node)
    graph.value_info.extend(function.value_info)
    for node in nodes_within(graph.node):
        bind_attributes(node, attributes)
    _strip_graph(graph, graph.node)
    containers = container_names(model.proto) if containers is None else containers
    if substitute(graph.node, containers):
        _import_domain(proto.opset_import)
    for callee in proto.functions:
        if substitute(callee.node, containers):
            _import_domain(callee.opset_import)
    add(graph, body, additions)
    return proto


def call_attributes(function: FunctionProto | GraphProto, call: NodeProto) -> dict[str, AttributeProto]:
    """What the nodes of a function may refer to: the attributes of the call, and the defaults of the function."""
    defaults = function.attribute_proto if isinstance(function, FunctionProto) else ()
    return {attribute.name: attribute for attribute in (*defaults, *call.attribute)}


def bind_attributes(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> None:
    """Put the values in place of references to attributes of the function; references to nothing are removed."""
    for index in reversed(range(len(node.attribute))):
        attribute = node.attribute[index]
        if attribute.ref_attr_name:
            value = attributes.get(attribute.ref_attr_name)
            if value is None or value.ref_attr_name:
                del node.attribute[index]
            else:
                name = attribute.name
                attribute.CopyFrom(value)
                attribute.name = name


def held_graphs(node: Any) -> Iterator[tuple[str, Any]]:
    """The graphs that a node message holds, stock or ours, by the names that :class:`mutcache.model.Node` gives."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for position, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}[{position}]", graph


def nodes_within(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """``nodes`` and those of their subgraphs, at every depth."""
    pending = [nodes]
    while pending:
        for node in pending.pop():
            yield node
            pending.extend(graph.node for _, graph in held_graphs(node))


def large_initializers(model: Model) -> Iterator[TensorProto]:
    """Initializers of the main graph whose bytes the projection leaves out, external ones among them."""
    counts = Counter(tensor.name for tensor in model.proto.graph.initializer)
    for tensor in model.proto.graph.initializer:
        if not tensor.name or counts[tensor.name] > 1:
            continue  # stock onnx says what is wrong with it
        is_external = tensor.data_location == TensorProto.EXTERNAL
        if min(tensor.dims, default=0) >= 0 and (is_external or math.prod(tensor.dims) >= _LARGE):
            yield tensor


def add(proto: GraphProto | FunctionProto, graph: Graph, additions: Mapping[Graph, Additions]) -> None:
    """Write ``additions`` into ``proto``, the message of ``graph`` or a copy of it, and into its subgraphs."""
    pending: list[tuple[GraphProto | FunctionProto, Graph]] = [(proto, graph)]
    while pending:
        proto, graph = pending.pop()
        if len(additions) > (graph in additions):
            for index in graph.nested:
                subgraphs = graph.nodes[index].subgraphs
                held = dict(held_graphs(proto.node[index]))
                pending.extend((held[name], subgraph) for name, subgraph in subgraphs.items())
        own = additions.get(graph)
        if own is None:
            continue
        _declare(proto, own)
        for index in own.omitted:
            _relax(proto.node[index])
        if isinstance(proto, GraphProto):
            proto.initializer.extend(_named(tensor, name) for name, tensor in own.constants.items())


def _named(tensor: TensorProto, name: str) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _copy_except(source: Message, target: Message, left_out: str) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name == left_out:
            continue
        if descriptor.is_repeated:
            getattr(target, descriptor.name).MergeFrom(value)
        elif descriptor.message_type is not None:
            getattr(target, descriptor.name).CopyFrom(value)
        else:
            setattr(target, descriptor.name, value)


def _import_domain(imports: Any) -> None:
    """Import our operators as they are registered; which version the model imports, MC-PROTO-006 judges."""
    opset = next((opset for opset in imports if opset.domain == DOMAIN), None) or imports.add(domain=DOMAIN)
    opset.version = DOMAIN_VERSION


def _relax(node: NodeProto) -> None:
    """Keep the type of an update or gather without its demands on other operands.

    An update becomes an Identity (beside an operator without schema stock inference is silent).
    """
    if node.op_type == "PagedCacheGather":
        node.input[1:] = [""]
        return
    del node.input[1:]
    del node.output[1:]
    node.op_type, node.domain = ("Identity", "") if node.op_type == "CacheUpdate" else (SUBSTITUTES["Identity"], DOMAIN)
    node.ClearField("attribute")


def _declare_inputs(graph: GraphProto, tensors: Iterable[TensorProto]) -> None:
    present = {value.name for value in graph.input}
    for tensor in tensors:
        if tensor.name not in present:
            set_type(graph.input.add(name=tensor.name).type, TensorType(tensor.data_type, tuple(tensor.dims)))


def _strip_function(function: FunctionProto) -> None:
    _strip_entries(function.value_info)
    _strip_nodes(function.node)
    if any(node.domain == DOMAIN for node in nodes_within(function.node)):
        _import_domain(function.opset_import)


def _strip_graph(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    for entries in (graph.input, graph.output, graph.value_info):
        _strip_entries(entries)
    _strip_nodes(nodes)


def _strip_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes_within(nodes):
        if node.output_alias:
            node.ClearField("output_alias")
        for _, graph in held_graphs(node):
            for entries in (graph.input, graph.output, graph.value_info):
                _strip_entries(entries)


def _strip_entries(entries: Iterable[ValueInfoProto]) -> None:
    for entry in entries:
        if entry.HasField("access"):
            entry.ClearField("access")
        if entry.HasField("alias_of"):
            entry.ClearField("alias_of")
        if entry.HasField("type") and not entry.type.HasField("tensor_type"):
            _strip_type(entry.type)


def _strip_type(proto: TypeProto) -> None:
    """Replace each quantized tensor inside by the tensor that it decodes to, and a map to such by a sequence.

    Pages pass through Identity in a map as in a sequence (MC-ACCESS-005 says where else); stock Identity takes no map.
    """
    outer = inner = proto
    while True:
        kind = inner.WhichOneof("value")
        if kind == "sequence_type":
            outer, inner = inner, inner.sequence_type.elem_type
        elif kind == "map_type":
            outer, inner = inner, inner.map_type.value_type
        elif kind == "optional_type":
            outer, inner = inner, inner.optional_type.elem_type
        else:
            break
    if kind == "quantized_tensor_type":
        tensor = TypeProto.Tensor(elem_type=inner.quantized_tensor_type.elem_type)
        if inner.quantized_tensor_type.HasField("shape"):
            tensor.shape.CopyFrom(inner.quantized_tensor_type.shape)
        if outer.HasField("map_type"):
            outer.sequence_type.elem_type.tensor_type.CopyFrom(tensor)
        else:
            inner.tensor_type.CopyFrom(tensor)


def _declare(proto: GraphProto | FunctionProto, additions: Additions) -> None:
    types, sizes = additions.types, additions.sizes
    if not types and not sizes:
        return
    missing = dict(types)
    for entry in entries_of(proto):
        if entry.name in types:
            _set_stock_type(entry.type, types[entry.name])
            missing.pop(entry.name, None)
        elif sizes and entry.type.HasField("tensor_type"):
            set_sizes(entry.type, sizes)
    for name, value_type in missing.items():
        _set_stock_type(proto.value_info.add(name=name).type, value_type)


def entries_of(proto: GraphProto | FunctionProto) -> Iterator[ValueInfoProto]:
    """Inputs, outputs and value_info; those of a function are its value_info alone."""
    if isinstance(proto, GraphProto):
        yield from proto.input
        yield from proto.output
    yield from proto.value_info


def set_sizes(proto: TypeProto, sizes: Mapping[str, int]) -> None:
    """Put sizes in place of symbols of a tensor."""
    for dim in proto.tensor_type.shape.dim if proto.tensor_type.HasField("shape") else ():
        if dim.dim_param in sizes:
            dim.dim_value = sizes[dim.dim_param]


def _set_stock_type(proto: TypeProto, value_type: ValueType) -> None:
    set_type(proto, value_type)
    _strip_type(proto)


def set_type(proto: TypeProto, value_type: ValueType | None) -> None:
    """Make ``proto`` say ``value_type``; what that leaves open, and denotations, stay as they are."""
    if isinstance(value_type, TensorType):
        proto.tensor_type.elem_type = value_type.elem_type
        _set_dims(proto.tensor_type, value_type.dims)
    elif isinstance(value_type, QuantizedTensorType):
        proto.quantized_tensor_type.elem_type = value_type.elem_type
        proto.quantized_tensor_type.allowed_quantized_type[:] = value_type.allowed
        _set_dims(proto.quantized_tensor_type, value_type.dims)
    elif isinstance(value_type, SequenceType):
        set_type(proto.sequence_type.elem_type, value_type.element)
    elif isinstance(value_type, MapType):
        proto.map_type.key_type = value_type.key_type
        set_type(proto.map_type.value_type, value_type.value)


def _set_dims(tensor: TypeProto.Tensor | TypeProto.QuantizedTensor, dims: tuple[Dim, ...] | None) -> None:
    if dims is None:
        tensor.ClearField("shape")
        return
    if not tensor.HasField("shape") or len(tensor.shape.dim) != len(dims):
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
        for _ in dims:
            tensor.shape.dim.add()
    for proto, dim in zip(tensor.shape.dim, dims, strict=True):
        if isinstance(dim, int):
            proto.dim_value = dim
        elif dim is not None:
            proto.dim_param = dim
