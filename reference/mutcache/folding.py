"""Constants: the small integers of a model that are the same in every run, whatever the caller passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from mutcache.constructs import Construct, construct_of, slots
from mutcache.frames import Frame
from mutcache.model import STANDARD_DOMAINS, Graph, Node, TensorType, ValueType
from mutcache.proto.onnx_ml import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

Constant = NDArray[np.generic]
#: A value, by the frame whose graph defines it and its name.
Place = tuple[Frame, str]

#: Constants of more elements are no positions.
_MAX_SIZE: Final = 1 << 10
#: What indices are made with. None of them makes much of little.
_FOLDED: Final = frozenset(
    [
        *("Abs", "Add", "Max", "Min", "Mul", "Neg", "Sub"),
        *("Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"),
        *("ReduceMax", "ReduceMin", "ReduceSum"),
    ]
)
_DTYPES: Final = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)


class Folder:
    """Evaluates constants: initializers that are no inputs, Constant nodes, and integer arithmetic with them.

    A name captured by a subgraph, an argument of a function, and a carried value that the body of a loop returns as it
    came mean the value outside. Sizes are constants where the shape is known.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        type_of: Callable[[str, Frame], ValueType | None],
    ) -> None:
        """Begin.

        Args:
            opsets: the operator sets of the main graph.
            type_of: what is known of the type of a name that a frame uses.
        """
        self._opsets = opsets
        self._type_of = type_of
        self._values: dict[Place, Constant | None] = {}
        self._names: dict[Graph, _Names] = {}

    def constant(self, name: str, frame: Frame) -> Constant | None:
        """The elements of ``name`` as ``frame`` uses it, or None. Total: cycles and garbage are no constants."""
        start = self._home(name, frame)
        pending = [start]
        entered: set[Place] = set()
        while pending:
            place = pending[-1]
            if place in self._values:
                pending.pop()
                continue
            operands = self._operands(place)
            waiting = [one for one in operands or () if one not in self._values]
            if waiting and place not in entered:
                entered.add(place)
                pending += waiting
                continue
            pending.pop()
            known = [self._values.get(one) for one in operands or ()]
            self._values[place] = (
                None
                if operands is None or any(one is None for one in known)
                else self._fold(place, cast("list[Constant]", known))
            )
        return self._values[start]

    def forget(self) -> None:
        """Begin anew: more is known of types."""
        self._values.clear()

    def enters(self, frame: Frame) -> bool | None:
        """Whether every run of the main graph enters ``frame``; False if none does, None if nobody can tell."""
        answer: bool | None = True
        while frame.outer is not None:
            entered = self._enters(frame)
            if entered is False:
                return False
            answer = answer and entered
            frame = frame.outer
        return answer

    def _enters(self, frame: Frame) -> bool | None:
        node, outer = frame.node, frame.outer
        assert node is not None
        assert outer is not None
        if frame.is_call:
            return True
        match construct_of(node):
            case Construct.BRANCH:
                condition = self._scalar(node, 0, outer)
                return None if condition is None else (frame.attribute == "then_branch") == bool(condition)
            case Construct.LOOP:
                # An absent trip count is no limit, an absent condition is true.
                trips = self._scalar(node, 0, outer) if any(node.inputs[:1]) else 1
                going = self._scalar(node, 1, outer) if any(node.inputs[1:2]) else 1
                if trips is not None and going is not None:
                    return trips > 0 and bool(going)
                return False if (trips is not None and trips <= 0) or going == 0 else None
        return None

    def _scalar(self, node: Node, position: int, frame: Frame) -> int | None:
        value = self.constant(node.inputs[position], frame) if position < len(node.inputs) else None
        return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def _home(self, name: str, frame: Frame) -> Place:
        """Where ``name`` gets its value, followed out of subgraphs, calls and slots that pass it through."""
        while frame.outer is not None:
            names = self._names_of(frame.scope.graph)
            if name in names.inputs:
                initial = frame.arguments.get(name) if frame.is_call else _passed_through(frame, name)
                if initial is None:
                    break
                name = initial
            elif frame.is_call or name in names.producers or name in frame.scope.graph.initializers:
                break
            frame = frame.outer
        return frame, name

    def _names_of(self, graph: Graph) -> _Names:
        if graph not in self._names:
            self._names[graph] = _Names(graph)
        return self._names[graph]

    def _operands(self, place: Place) -> list[Place] | None:
        """The places whose values are needed for that of ``place``; None if it is no constant."""
        frame, name = place
        graph, names = frame.scope.graph, self._names_of(frame.scope.graph)
        if name in names.inputs:
            return None
        if name in graph.initializers:
            return []
        index = names.producers.get(name)
        if index is None:
            return None
        node = graph.nodes[index]
        if not node.is_standard or node.outputs[:1] != (name,) or node.subgraphs:
            return None
        if node.op_type in ("Constant", "Shape", "Size"):
            return []
        if node.op_type not in _FOLDED:
            return None
        return [self._home(operand, frame) for operand in node.inputs if operand]

    def _fold(self, place: Place, operands: list[Constant]) -> Constant | None:
        frame, name = place
        graph = frame.scope.graph
        if name in graph.initializers:
            return tensor_value(graph.initializers[name])
        node = graph.nodes[self._names_of(graph).producers[name]]
        proto = frame.bind(node.proto)
        if node.op_type == "Constant":
            return constant_value(proto)
        if node.op_type in ("Shape", "Size"):
            return shape_value(self._type_of(node.inputs[0], frame) if len(node.inputs) == 1 else None, proto)
        feeds = iter(operands)
        return evaluate(proto, [next(feeds) if operand else None for operand in node.inputs], self._opsets_of(frame))

    def _opsets_of(self, frame: Frame) -> Mapping[str, int]:
        proto = frame.top.scope.graph.proto
        if not isinstance(proto, FunctionProto):
            return self._opsets
        return {opset.domain: opset.version for opset in proto.opset_import}


class _Names:
    """Who defines the names of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.inputs = frozenset(value.name for value in graph.inputs)

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """The first node that defines each name."""
        found: dict[str, int] = {}
        for index, proto in enumerate(self._graph.node_protos):
            for name in proto.output:
                found.setdefault(name, index)
        found.pop("", None)
        return found


def _passed_through(frame: Frame, formal: str) -> str | None:
    """The initial value of a carried slot whose body returns what it was given, in every iteration."""
    node, graph = frame.node, frame.scope.graph
    if node is None or frame.outer is None:
        return None
    for slot in slots(node, graph):
        if graph.inputs[slot.formal].name == formal and node.inputs[slot.initial]:
            result = graph.outputs[slot.result].name
            copies = {
                proto.output[0]: proto.input[0]
                for proto in graph.node_protos
                if proto.op_type == "Identity" and proto.domain in STANDARD_DOMAINS and proto.input and proto.output
            }
            while result in copies:
                result = copies.pop(result)
            return node.inputs[slot.initial] if result == formal else None
    return None


def evaluate(proto: NodeProto, operands: list[Constant | None], opsets: Mapping[str, int]) -> Constant | None:
    """The one output of a standard node with these operands, None if it is no small integer tensor or no value."""
    try:
        stock = onnx.GraphProto.FromString(GraphProto(node=[proto]).SerializeToString())
        stock.node[0].domain = ""
        version = opsets.get("", opsets.get("ai.onnx", 1))
        kernel = ReferenceEvaluator(stock, opsets={"": version}).rt_nodes_[0]
        with np.errstate(all="ignore"):
            return _kept(np.asarray(kernel.run(*operands)[0]))
    except Exception:  # garbage: whatever is wrong with the node, its value is no constant
        return None


def shape_value(known: ValueType | None, proto: NodeProto) -> Constant | None:
    """The elements of the output of a Shape or Size node whose operand has a known shape."""
    if not isinstance(known, TensorType) or known.dims is None:
        return None
    bounds = {attribute.name: attribute.i for attribute in proto.attribute}
    sizes = known.dims if proto.op_type == "Size" else known.dims[bounds.get("start") : bounds.get("end")]
    if not all(isinstance(size, int) and 0 <= size < 1 << 63 for size in sizes):
        return None
    whole = [cast("int", size) for size in sizes]
    if proto.op_type == "Shape":
        return np.array(whole, np.int64)
    return np.array(math.prod(whole), np.int64) if math.prod(whole) < 1 << 63 else None


def constant_value(proto: NodeProto) -> Constant | None:
    """The elements of the output of a Constant node, if they are few integers."""
    for attribute in proto.attribute:
        if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
            return tensor_value(attribute.t)
        if attribute.name == "value_int" and attribute.type == AttributeProto.INT:
            return np.array(attribute.i, np.int64)
        if attribute.name == "value_ints" and attribute.type == AttributeProto.INTS:
            return _kept(np.array(attribute.ints, np.int64))
    return None


def tensor_value(tensor: TensorProto) -> Constant | None:
    """The elements of a tensor that the model holds, if they are few integers."""
    if (
        tensor.data_type not in _DTYPES
        or tensor.data_location == TensorProto.EXTERNAL
        or min(tensor.dims, default=0) < 0
        or math.prod(tensor.dims) > _MAX_SIZE
    ):
        return None
    try:
        # onnx's helper reads only fields that the delta leaves alone, so it serves our class too.
        return _kept(numpy_helper.to_array(cast("Any", tensor)))
    except (ValueError, TypeError):  # the bytes do not fit the dims: the base check says so
        return None


def _kept(value: Constant) -> Constant | None:
    return value if value.dtype in (np.int64, np.int32, np.bool_) and value.size <= _MAX_SIZE else None
