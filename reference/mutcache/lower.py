"""``lower``: the model of stock ONNX that computes the same values, without any promise about storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mutcache.errors import MutcacheError
from mutcache.model import DOMAIN, STANDARD_DOMAINS
from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.renaming import nested_graphs
from mutcache.schemas import update_attributes

#: The standard operator set that brought TensorScatter, and the IR version of the first runtimes that know it.
LOWERED_OPSET: Final = 24
LOWERED_IR_VERSION: Final = 11


def lower(model: ModelProto) -> ModelProto:
    """A copy without the delta, in which every ``CacheUpdate`` is a ``TensorScatter``.

    What an update returned in place, the lowered model returns as another value: the same bytes, in new memory.

    Raises:
        MutcacheError: the model has functions, quantized pages, or standard operators from before set 24; or a node
            has no lowering. ``TensorScatter`` takes axis 0 for the batch, so ``axis`` must be another one, as the
            attribute or the declared rank of the cache tells, and ``batch_axis`` must be 0 or absent.
    """
    opset = next((opset.version for opset in model.opset_import if opset.domain in STANDARD_DOMAINS), 0)
    if opset < LOWERED_OPSET:
        raise MutcacheError(
            f"the model imports version {opset} of the standard operators, TensorScatter came with {LOWERED_OPSET}",
            hint=f"convert the model to version {LOWERED_OPSET} first",
        )
    if model.functions:
        raise MutcacheError("the model has functions", hint="inline them first: mutcache.inline(model)")
    if model.quantizations:
        raise MutcacheError("the model has quantized pages, for which stock ONNX has no operators")
    result = ModelProto()
    result.CopyFrom(model)
    result.ir_version = LOWERED_IR_VERSION
    kept = [opset for opset in result.opset_import if opset.domain != DOMAIN]
    del result.opset_import[:]
    result.opset_import.extend(kept)
    for graph in (*reversed(tuple(nested_graphs(result.graph.node))), result.graph):  # inner ones first: see below
        _lower_graph(graph)
    return result


def _lower_graph(graph: GraphProto) -> None:
    entries = [*graph.input, *graph.output, *graph.value_info]
    declared = {entry.name: entry for entry in entries}
    for entry in entries:
        entry.ClearField("access")
        entry.ClearField("alias_of")
    updates = False
    for node in graph.node:
        node.ClearField("output_alias")
        updates = updates or node.domain == DOMAIN
    if updates:
        nodes = [lowered for node in graph.node for lowered in _lower_node(node, declared)]
        del graph.node[:]
        graph.node.extend(nodes)  # copies them, with their subgraphs


def _lower_node(node: NodeProto, declared: Mapping[str, ValueInfoProto]) -> Iterator[NodeProto]:
    if node.domain != DOMAIN:
        yield node
        return
    label = f"{node.op_type} {node.name or node.output[0]!r}"
    if node.op_type != "CacheUpdate":
        raise MutcacheError(f"{label}: stock ONNX has no such operator")
    cache, values, position = node.input
    attributes = update_attributes(node)
    if attributes.batch_axis not in (None, 0):
        raise MutcacheError(f"{label}: batch_axis is {attributes.batch_axis}, TensorScatter's batch is axis 0")
    axis = attributes.axis
    if axis < 0:
        shape = declared[cache].type.tensor_type if cache in declared else None
        if shape is None or not shape.HasField("shape"):
            raise MutcacheError(f"{label}: axis is {axis}, and the rank of {cache!r} is not declared in its graph")
        axis += len(shape.shape.dim)
    if axis == 0:
        raise MutcacheError(f"{label}: axis is 0, which TensorScatter takes for the batch")
    if attributes.batch_axis is None:  # TensorScatter wants one position per row of the batch
        batch, rows = f"{node.output[0]}/batch", f"{node.output[0]}/positions"
        yield _node("Shape", [cache], batch, start=0, end=1)
        yield _node("Expand", [position, batch], rows)
        position = rows
    scatter = _node("TensorScatter", [cache, values, position], node.output[0], axis=axis)
    scatter.name = node.name
    scatter.attribute.add(name="mode", s=attributes.mode.encode(), type="STRING")
    yield scatter


def _node(op_type: str, inputs: list[str], output: str, **integers: int) -> NodeProto:
    node = NodeProto(op_type=op_type, input=inputs, output=[output])
    for name, value in integers.items():
        node.attribute.add(name=name, i=value, type="INT")
    return node
