"""What stock onnx says of a projection: whether it is sound, and what types its values have."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, cast

import onnx
from onnx import checker, shape_inference

from mutcache.decode import decode_type
from mutcache.errors import MutcacheError
from mutcache.model import FunctionKey, Model, ValueType
from mutcache.projection import held_graphs, large_initializers, nodes_within
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto

#: Stock inference enters each call, so functions that call functions make much work of a small model.
MAX_CALLED: Final = 1 << 20
#: Bytes of large tensors that are checked together.
_BATCH: Final = 1 << 26


def structure_error(model: Model, projected: bytes) -> str:
    """What ``onnx.checker`` says of the structure of the projection and of the large tensors, "" when it is sound."""
    try:
        checker.check_model(projected)
        for batch in _batches(model):
            checker.check_model(batch.SerializeToString())
    except MutcacheError as error:
        return error.message
    except Exception as error:  # stock onnx raises whatever its C++ code throws
        return _one_line(error)
    return ""


def _batches(model: Model) -> Iterable[ModelProto]:
    """The large tensors with their bytes, as models of nothing else."""
    batch, size = _empty_model(), 0
    for tensor in large_initializers(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            continue
        size += tensor.ByteSize()
        if size >= 1 << 31:
            raise MutcacheError(f"initializer {tensor.name!r} is larger than the 2 GiB that protobuf holds")
        batch.graph.initializer.append(tensor)
        if size >= _BATCH:
            yield batch
            batch, size = _empty_model(), 0
    if size:
        yield batch


def _empty_model() -> ModelProto:
    made = ModelProto(ir_version=14)
    made.opset_import.add(domain="", version=1)
    made.graph.name = "initializers"
    return made


class StockTypes:
    """The types that stock inference knows of the values of one graph, and of those inside it."""

    def __init__(self, graph: onnx.GraphProto | None, wanted: Collection[str] = ()) -> None:
        """Of ``wanted`` names the types are looked up together, since graphs may be large; of others one at a time."""
        self.graph = graph
        self._types = (
            {} if graph is None else {entry.name: entry.type for entry in _entries(graph) if entry.name in wanted}
        )
        self._wanted = wanted

    @cached_property
    def _others(self) -> Mapping[str, onnx.TypeProto]:
        return {} if self.graph is None else {entry.name: entry.type for entry in _entries(self.graph)}

    def get(self, name: str) -> ValueType | None:
        """The type of one value; nothing of containers, in which the projection has replaced quantized tensors."""
        proto = self._types.get(name) if name in self._wanted else self._others.get(name)
        if proto is None or not proto.HasField("tensor_type"):
            return None
        return decode_type(cast("Any", proto))

    def names(self) -> tuple[str, ...]:
        """Every value with a type, inputs of the graph first."""
        if self.graph is None:
            return ()
        entries = itertools.chain(self.graph.input, self.graph.output, self.graph.value_info)
        return tuple(dict.fromkeys(entry.name for entry in entries))

    def inside(self, index: int, attribute: str) -> StockTypes:
        """Those of a graph that node ``index`` holds."""
        return StockTypes(None if self.graph is None else dict(held_graphs(self.graph.node[index])).get(attribute))


def _entries(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    return itertools.chain(graph.value_info, graph.output, graph.input)


def infer(projected: bytes, wanted: Collection[str] = ()) -> tuple[str, StockTypes]:
    """Run stock type and shape inference as ``onnx.checker``'s full check does, with data propagation.

    Returns:
        What it says, "" when all agrees, and the types that it knows.
    """
    message = ""
    # What only data propagation takes for an error, the full check accepts.
    for strict, data_propagation in ((True, True), (True, False), (False, False)):
        try:
            inferred = shape_inference.infer_shapes(projected, strict, strict, data_propagation)
        except Exception as error:  # stock onnx raises whatever its C++ code throws
            message = _one_line(error)
        else:
            return message if not strict else "", StockTypes(inferred.graph, wanted)
    return message, StockTypes(None)


def infer_types(projected: bytes) -> StockTypes:
    """The types that stock inference finds, whatever it says of the model."""
    try:
        return StockTypes(shape_inference.infer_shapes(projected, False, False, True).graph)
    except Exception:  # garbage: nothing is known
        return StockTypes(None)


def inferred_types(projected: ModelProto, names: Collection[str]) -> dict[str, ValueType]:
    """The tensor types that stock inference knows of ``names`` in the main graph."""
    _, types = infer(serialize(projected), names)
    known = ((name, types.get(name)) for name in names)
    return {name: value_type for name, value_type in known if value_type is not None}


def called_nodes(model: Model) -> int:
    """How many nodes stock inference visits inside calls; the functions must not be recursive."""
    bodies = {(body.domain, body.name, body.overload): body for body in model.proto.functions}
    sizes: dict[FunctionKey, int] = {}

    def size(nodes: Iterable[NodeProto]) -> tuple[int, int]:
        count = called = 0
        for node in nodes_within(nodes):
            count += 1
            key = (node.domain, node.op_type, node.overload)
            if key in bodies:
                if key not in sizes:
                    sizes[key] = sum(size(bodies[key].node))
                called += sizes[key]
        return count, called

    return size(model.proto.graph.node)[1] if bodies else 0


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
