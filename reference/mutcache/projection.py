"""The model as stock onnx can judge it: without the delta, and without the bytes of large initializers.

A large initializer of the main graph becomes an input of the same type: stock onnx then knows of it
what it needs, and gigabytes are neither copied nor parsed again. Its bytes are checked one tensor at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import onnx
from google.protobuf.message import EncodeError, Message
from onnx import checker, shape_inference

import mutcache.schemas  # noqa: F401  # registers the operators with stock onnx
from mutcache.decode import decode_type
from mutcache.errors import MutcacheError
from mutcache.model import DOMAIN, DOMAIN_VERSION, STANDARD_DOMAINS, Dim, Model, TensorType, ValueType
from mutcache.proto import BASE_IR_VERSION, IR_VERSION, serialize
from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto
from mutcache.scopes import walk

#: Elements from which on an initializer is large. Shapes and positions, whose values matter, are far smaller.
_LARGE: Final = 1 << 16


def project(model: Model, types: Mapping[str, ValueType] | None = None, omitted: Collection[int] = ()) -> ModelProto:
    """A model of IR version 14 at most that is sound for stock onnx if and only if ``model`` is, the delta apart.

    Quantized containers become sequences and maps of tensors of their decoded type. The model is not modified.

    Args:
        model: the model.
        types: types to give to values of the main graph instead of those declared.
        omitted: indices of update nodes of the main graph that stock onnx shall not judge.
    """
    large = frozenset(tensor.name for tensor in large_initializers(model))
    proto = ModelProto()
    if large:
        _copy_except(model.proto, proto, "graph")
        _copy_except(model.proto.graph, proto.graph, "initializer")
        proto.graph.initializer.extend(tensor for tensor in model.proto.graph.initializer if tensor.name not in large)
        _declare_inputs(proto.graph, (model.graph.initializers[name] for name in large))
    else:
        proto.CopyFrom(model.proto)
    if proto.ir_version == IR_VERSION:
        proto.ir_version = BASE_IR_VERSION
    proto.ClearField("quantizations")
    graph = proto.graph
    _strip(graph, (graph.node[index] for index in sorted({*model.graph.marked, *model.graph.nested})))
    for function in proto.functions:
        _strip_entries(function.value_info)
        _strip_nodes(function.node)
    if any(scope.marked for scope in walk(model.graph)):
        _import_domain(proto.opset_import)
    for function in proto.functions:
        if any(node.domain == DOMAIN for node in function.node):
            _import_domain(function.opset_import)
    _declare(graph, types or {})
    for index in omitted:
        _make_identity(graph.node[index])
    if omitted and not any(opset.domain in STANDARD_DOMAINS for opset in proto.opset_import):
        proto.opset_import.add(domain="", version=1)
    return proto


def _import_domain(imports: Any) -> None:
    """Import our operators as they are registered; which version the model imports, MC-PROTO-006 judges."""
    opset = next((opset for opset in imports if opset.domain == DOMAIN), None) or imports.add(domain=DOMAIN)
    opset.version = DOMAIN_VERSION


def large_initializers(model: Model) -> Iterator[TensorProto]:
    """Initializers of the main graph whose bytes the projection leaves out, external ones among them."""
    counts = Counter(tensor.name for tensor in model.proto.graph.initializer)
    for tensor in model.proto.graph.initializer:
        if not tensor.name or counts[tensor.name] > 1:
            continue  # stock onnx says what is wrong with it
        is_external = tensor.data_location == TensorProto.EXTERNAL
        if min(tensor.dims, default=0) >= 0 and (is_external or math.prod(tensor.dims) >= _LARGE):
            yield tensor


def _copy_except(source: Message, target: Message, left_out: str) -> None:
    for field, value in source.ListFields():
        if field.name == left_out:
            continue
        if field.is_repeated:
            getattr(target, field.name).MergeFrom(value)
        elif field.message_type is not None:
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def _make_identity(node: NodeProto) -> None:
    """Keep the type of an update without its demands (beside an operator without schema stock inference is silent)."""
    del node.input[1:]
    del node.output[1:]
    node.op_type, node.domain = "Identity", ""
    node.ClearField("attribute")


def _declare_inputs(graph: GraphProto, tensors: Iterable[TensorProto]) -> None:
    present = {value.name for value in graph.input}
    for tensor in tensors:
        if tensor.name not in present:
            entry = graph.input.add(name=tensor.name)
            entry.type.tensor_type.elem_type = tensor.data_type
            entry.type.tensor_type.shape.SetInParent()
            for dim in tensor.dims:
                entry.type.tensor_type.shape.dim.add(dim_value=dim)


def _strip(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    for entries in (graph.input, graph.output, graph.value_info):
        _strip_entries(entries)
    _strip_nodes(nodes)


def _strip_nodes(nodes: Iterable[NodeProto]) -> None:
    pending = [nodes]
    while pending:
        for node in pending.pop():
            if node.output_alias:
                node.ClearField("output_alias")
            for attribute in node.attribute:
                for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                    for entries in (graph.input, graph.output, graph.value_info):
                        _strip_entries(entries)
                    pending.append(graph.node)


def _strip_entries(entries: Iterable[ValueInfoProto]) -> None:
    for entry in entries:
        if entry.HasField("access"):
            entry.ClearField("access")
        if entry.HasField("alias_of"):
            entry.ClearField("alias_of")
        if entry.HasField("type") and not entry.type.HasField("tensor_type"):
            _strip_type(entry.type)


def _strip_type(proto: TypeProto) -> None:
    """Replace each quantized tensor inside by the tensor that it decodes to."""
    inner = proto
    while True:
        kind = inner.WhichOneof("value")
        if kind == "sequence_type":
            inner = inner.sequence_type.elem_type
        elif kind == "map_type":
            inner = inner.map_type.value_type
        elif kind == "optional_type":
            inner = inner.optional_type.elem_type
        else:
            break
    if kind == "quantized_tensor_type":
        tensor = TypeProto.Tensor(elem_type=inner.quantized_tensor_type.elem_type)
        if inner.quantized_tensor_type.HasField("shape"):
            tensor.shape.CopyFrom(inner.quantized_tensor_type.shape)
        inner.tensor_type.CopyFrom(tensor)


def _declare(graph: GraphProto, types: Mapping[str, ValueType]) -> None:
    missing = dict(types)
    if not missing:
        return
    for entries in (graph.input, graph.output, graph.value_info):
        for entry in entries:
            if entry.name in types:
                _set_type(entry.type, types[entry.name])
                missing.pop(entry.name, None)
    for name, value_type in missing.items():
        _set_type(graph.value_info.add(name=name).type, value_type)


def _set_type(proto: TypeProto, value_type: ValueType) -> None:
    if isinstance(value_type, TensorType):
        proto.tensor_type.elem_type = value_type.elem_type
        proto.tensor_type.ClearField("shape")
        if value_type.dims is not None:
            proto.tensor_type.shape.SetInParent()
            for dim in value_type.dims:
                _add_dim(proto, dim)


def _add_dim(proto: TypeProto, dim: Dim) -> None:
    added = proto.tensor_type.shape.dim.add()
    if isinstance(dim, int):
        added.dim_value = dim
    elif dim is not None:
        added.dim_param = dim


def structure_error(model: Model, projected: ModelProto) -> str:
    """What ``onnx.checker`` says of the structure of the projection and of the large tensors, "" when it is sound."""
    try:
        checker.check_model(serialize(projected))
        for tensor in large_initializers(model):
            if tensor.data_location != TensorProto.EXTERNAL:
                checker.check_tensor(_stock(tensor))
    except MutcacheError as error:
        return error.message
    except Exception as error:  # stock onnx raises whatever its C++ code throws
        return _one_line(error)
    return ""


def _stock(tensor: TensorProto) -> onnx.TensorProto:
    try:
        return onnx.TensorProto.FromString(tensor.SerializeToString())
    except (EncodeError, ValueError):
        raise MutcacheError(f"initializer {tensor.name!r} is larger than the 2 GiB that protobuf holds") from None


def inference_error(projected: ModelProto, names: Collection[str]) -> tuple[str, dict[str, ValueType]]:
    """Run stock type and shape inference as ``onnx.checker``'s full check does.

    Returns:
        What it says, "" when all agrees, and the tensor types that it knows of ``names`` in the main graph.
    """
    message = ""
    data = serialize(projected)
    try:
        inferred = shape_inference.infer_shapes(data, check_type=True, strict_mode=True)
    except Exception as error:  # stock onnx raises whatever its C++ code throws
        message = _one_line(error)
        try:
            inferred = shape_inference.infer_shapes(data)
        except Exception:  # the first message stands
            return message, {}
    types: dict[str, ValueType] = {}
    for entries in (inferred.graph.input, inferred.graph.output, inferred.graph.value_info):
        for entry in entries:
            if entry.name in names:
                value_type = decode_type(cast("Any", entry.type))
                if isinstance(value_type, TensorType):
                    types[entry.name] = value_type
    return message, types


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
