"""Graphs by functional semantics: control flow, functions and aliases, around the operators of ``onnx.reference``.

``onnx.reference`` runs single nodes here, no bodies: it stacks what a Loop collects along an existing axis, takes a
condition left out for a false one, and does not tell the overloads of a function apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mutcache.model import DOMAIN
from mutcache.proto.onnx_ml import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    ValueAliasProto,
    ValueInfoProto,
)
from mutcache_conformance.oracle_pages import Gathered, Pages, paged_gather, paged_update
from mutcache_conformance.oracle_update import Array, Contents, OracleRefusal, updated_contents

Values = dict[str, Any]
Opsets = Iterable[OperatorSetIdProto]


class _Lost:
    """The value of what depends on a refused update."""


_LOST: Final = _Lost()
#: Holds the maximum of an INT64, for a Loop without a number of trips.
_FOREVER: Final = 2**63 - 1


@dataclass(frozen=True)
class Interpreter:
    """Evaluates the graphs of a model; no value is ever modified.

    Attributes:
        model: a model that the specification accepts.
        record: told of every (old, new): the contents of one storage before and after a node mutated it.
        gathered: what was gathered of pages, by the id of the array, which it holds.
    """

    model: ModelProto
    record: Callable[[Contents, Contents], None]
    gathered: dict[int, Gathered] = field(default_factory=dict)
    _kernels: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Contents]) -> list[Contents]:
        """The outputs of the main graph; ``inputs`` may replace initializers.

        Raises:
            OracleRefusal: an update must be refused. All that does not depend on it was evaluated and recorded,
                the iterations of a loop one after the other.
        """
        return self._graph(self.model.graph, dict(inputs), self.model.opset_import)

    def _graph(self, graph: GraphProto, values: Values, opsets: Opsets) -> list[Contents]:
        """The outputs of a graph; ``values`` are its inputs and what it captures."""
        held = {one.name: _tensor(one) for one in graph.initializer}
        values = {**values, **{name: value for name, value in held.items() if name not in values}}
        self._nodes(graph.node, values, opsets)
        return [values[output.name] for output in graph.output]

    def _nodes(self, nodes: Iterable[NodeProto], values: Values, opsets: Opsets) -> None:
        """Evaluate all nodes that can be; raises at last what the first one raised that could not."""
        refusal: OracleRefusal | None = None
        for node in nodes:
            results: Sequence[Contents] = [_LOST] * len(node.output)
            operands = [values[name] if name else None for name in node.input]
            if not any(operand is _LOST for operand in operands):
                try:
                    results = self._node(node, operands, values, opsets)
                except OracleRefusal as raised:
                    refusal = refusal or raised
            values.update((name, result) for name, result in zip(node.output, results, strict=False) if name)
        if refusal is not None:
            raise refusal

    def _node(
        self, node: NodeProto, operands: Sequence[Contents], values: Values, opsets: Opsets
    ) -> Sequence[Contents]:
        bodies = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
        function = self._function(node)
        if function is not None:
            return self._call(function, node, operands)
        match "" if node.domain == "ai.onnx" else node.domain, node.op_type:
            case "", "If":
                chosen = "then_branch" if operands[0].item() else "else_branch"
                return self._graph(bodies[chosen], values, opsets)
            case "", "Loop":
                return self._loop(bodies["body"], operands, values, opsets)
            case "", "Scan":
                return self._scan(node, bodies["body"], operands, values, opsets)
            case "", "Identity":
                [value] = operands
                is_copy = value is not None and not any(_aliases(node))
                return [value.copy() if is_copy else value]
            case name, "CacheUpdate" if name == DOMAIN:
                results: list[Contents] = [updated_contents(*operands, **_attributes(node))]
                self.record(operands[0], results[0])
                return results
            case name, "PagedCacheUpdate" if name == DOMAIN:
                results = [paged_update(*operands, **_attributes(node))]
                self.record(operands[0], results[0])
                return results
            case name, "PagedCacheGather" if name == DOMAIN:
                gathered = paged_gather(*operands, **_attributes(node))
                self.gathered[id(gathered.values)] = gathered
                return [gathered.values]
            case "", "SequenceLength" if isinstance(operands[0], Pages):
                return [np.array(len(operands[0].pages), np.int64)]
        results = list(self._kernel(node, operands, opsets))
        for output, source in _aliases(node):
            results[output] = results[output].copy()  # a kernel may hand its operand on
            self.record(operands[source], results[output])
        return results

    # Bodies

    def _loop(
        self, body: GraphProto, operands: Sequence[Contents], values: Values, opsets: Opsets
    ) -> Sequence[Contents]:
        trips, condition, *carried = operands
        count = _FOREVER if trips is None else trips.item()
        goes_on: Contents = np.array(True) if condition is None else condition
        names = [value.name for value in body.input]
        collected: list[list[Contents]] = [[] for _ in body.output[1 + len(carried) :]]
        iteration = 0
        while iteration < count and goes_on.item():
            formals = (np.array(iteration, np.int64), goes_on, *carried)
            goes_on, *results = self._graph(body, {**values, **dict(zip(names, formals, strict=True))}, opsets)
            carried, scanned = results[: len(carried)], results[len(carried) :]
            _collect(collected, scanned)
            if goes_on is _LOST:
                return [_LOST] * (len(carried) + len(collected))
            iteration += 1
        return [*carried, *map(_stacked, collected, body.output[1 + len(carried) :])]

    def _scan(
        self, node: NodeProto, body: GraphProto, operands: Sequence[Contents], values: Values, opsets: Opsets
    ) -> Sequence[Contents]:
        attributes = _attributes(node)
        scanned = attributes["num_scan_inputs"]
        states, inputs = list(operands[:-scanned]), operands[-scanned:]
        outputs = body.output[len(states) :]

        def each(what: str, number: int) -> Sequence[int]:
            return attributes.get(f"scan_{what}") or [0] * number

        sequences = [
            np.moveaxis(value, axis, 0)[:: -1 if direction else 1]
            for value, axis, direction in zip(
                inputs, each("input_axes", scanned), each("input_directions", scanned), strict=True
            )
        ]
        names = [value.name for value in body.input]
        collected: list[list[Contents]] = [[] for _ in outputs]
        for slices in zip(*sequences, strict=True):
            results = self._graph(body, {**values, **dict(zip(names, (*states, *slices), strict=True))}, opsets)
            states = results[: len(states)]
            _collect(collected, results[len(states) :])
        stacks = [
            stack if stack is _LOST else np.moveaxis(stack[:: -1 if direction else 1], 0, axis)
            for stack, axis, direction in zip(
                map(_stacked, collected, outputs),
                each("output_axes", len(outputs)),
                each("output_directions", len(outputs)),
                strict=True,
            )
        ]
        return [*states, *stacks]

    # Functions

    def _function(self, node: NodeProto) -> FunctionProto | None:
        wanted = node.domain, node.op_type, node.overload
        found = (one for one in self.model.functions if (one.domain, one.name, one.overload) == wanted)
        return next(found, None)

    def _call(self, function: FunctionProto, node: NodeProto, operands: Sequence[Contents]) -> Sequence[Contents]:
        values: Values = dict.fromkeys(function.input)
        values.update(zip(function.input, operands, strict=False))
        given = {attribute.name: attribute for attribute in (*function.attribute_proto, *node.attribute)}
        nodes = [NodeProto.FromString(one.SerializeToString()) for one in function.node]
        _substitute(nodes, given)
        self._nodes(nodes, values, function.opset_import)
        return [values[name] for name in function.output]

    # Operators of onnx.reference

    def _kernel(self, node: NodeProto, operands: Sequence[Contents], opsets: Opsets) -> Sequence[Contents]:
        types = tuple(operand.dtype if isinstance(operand, np.ndarray) else None for operand in operands)
        key = node.SerializeToString(), types
        if key not in self._kernels:
            made = ModelProto(opset_import=opsets)
            made.graph.node.append(node)
            made.graph.output.extend(ValueInfoProto(name=name) for name in node.output if name)
            for name, dtype in dict(zip(node.input, types, strict=True)).items():
                if name:
                    value = made.graph.input.add(name=name)
                    if dtype is not None:
                        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
            self._kernels[key] = ReferenceEvaluator(onnx.ModelProto.FromString(made.SerializeToString()))
        feeds = {name: operand for name, operand in zip(node.input, operands, strict=True) if name}
        results = iter(self._kernels[key].run(None, feeds))
        return [next(results) if name else None for name in node.output]


def _aliases(node: NodeProto) -> list[tuple[int, int]]:
    return [
        (alias.output_index, alias.input_index)
        for alias in node.output_alias
        if alias.kind == ValueAliasProto.MUST_ALIAS
    ]


def _attributes(node: NodeProto) -> dict[str, Any]:
    stock = onnx.NodeProto.FromString(node.SerializeToString())
    values = {one.name: helper.get_attribute_value(one) for one in stock.attribute if not one.HasField("g")}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def _tensor(proto: Any) -> Array:
    return numpy_helper.to_array(onnx.TensorProto.FromString(proto.SerializeToString()))


def _collect(collected: Sequence[list[Contents]], values: Sequence[Contents]) -> None:
    for one, value in zip(collected, values, strict=True):
        one.append(value)


def _stacked(collected: Sequence[Contents], declared: ValueInfoProto) -> Contents:
    """What a loop collected, along a new first axis."""
    if any(value is _LOST for value in collected):
        return _LOST
    if collected:
        return np.stack(collected)
    tensor = declared.type.tensor_type
    dims = [dim.dim_value for dim in tensor.shape.dim]
    return np.zeros((0, *dims), helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _substitute(nodes: Iterable[NodeProto], given: Mapping[str, AttributeProto]) -> None:
    """Put the attributes of a call in the place of references to them."""
    for node in nodes:
        for attribute in list(node.attribute):
            _substitute(attribute.g.node, given)
            if attribute.ref_attr_name:
                name, source = attribute.name, given.get(attribute.ref_attr_name)
                node.attribute.remove(attribute)
                if source is not None:
                    node.attribute.add().CopyFrom(source)
                    node.attribute[-1].name = name
