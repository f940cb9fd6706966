"""If, Loop and Scan: how often a body runs, on what, and what becomes of what it returns.

The bodies run elsewhere, and keep the storages that they are given: a carried cache is the same array in every
iteration. What a loop collects is stacked, so it is a copy; the body sees to it that nothing which it returns is a view
of storage that its next run may write to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from mutcache.constructs import Construct, construct_of
from mutcache.model import Graph, Node, TensorType, Value
from mutcache.ops.standard import Kernel
from mutcache.proto.onnx_ml import NodeProto
from mutcache.storage import Array, dtype_of, to_host

#: A condition that is left out.
_TRUE: Final = np.array(True)
_TRUE.flags.writeable = False


class Body(Protocol):
    """A subgraph that can run."""

    @property
    def graph(self) -> Graph:
        """The subgraph."""

    def run(self, around: Mapping[str, Any], arguments: Sequence[Any], iteration: int | None = None) -> list[Any]:
        """Its outputs.

        Args:
            around: the values of the graph around it by name, which it captures.
            arguments: its formal inputs, in order.
            iteration: how often it has run before on behalf of the node that holds it; None for a branch.
        """


def control_flow(node: Node, proto: NodeProto, bodies: Mapping[str, Body]) -> Kernel:
    """The kernel of an If, Loop or Scan.

    Args:
        node: the node.
        proto: its message without references to attributes of a function.
        bodies: its subgraphs by attribute.
    """
    match construct_of(node):
        case Construct.BRANCH:
            return _branch(node, bodies["then_branch"], bodies["else_branch"])
        case Construct.LOOP:
            return _loop(node, bodies["body"])
    return _scan(node, proto, bodies["body"])


def _branch(node: Node, then: Body, otherwise: Body) -> Kernel:
    condition = node.inputs[0]

    def run(values: Mapping[str, Any]) -> Sequence[Any]:
        return (then if _scalar(condition, values[condition]) else otherwise).run(values, ())

    return run


def _loop(node: Node, body: Body) -> Kernel:
    trips, condition, *initial = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    collected = body.graph.outputs[1 + len(initial) :]
    goes_on_name = body.graph.outputs[0].name

    def run(values: Mapping[str, Any]) -> Sequence[Any]:
        count = None if values[trips] is None else _scalar(trips, values[trips])
        goes_on = _TRUE if values[condition] is None else values[condition]
        carried = [values[name] for name in initial]
        collections: list[list[Any]] = [[] for _ in collected]
        iteration = 0
        is_true = _scalar(condition, goes_on)
        while is_true and (count is None or iteration < count):
            arguments = (np.array(iteration, np.int64), goes_on, *carried)
            goes_on, *results = body.run(values, arguments, iteration)
            is_true = _scalar(goes_on_name, goes_on)
            carried = results[: len(carried)]
            _collect(collections, results[len(carried) :])
            iteration += 1
        return [*carried, *map(_stack, collections, collected)]

    return run


def _scan(node: Node, proto: NodeProto, body: Body) -> Kernel:
    attributes: dict[str, Any] = {one.name: list(one.ints) or one.i for one in proto.attribute}
    scanned = attributes["num_scan_inputs"]
    states = len(node.inputs) - scanned
    collected = body.graph.outputs[states:]
    takes = tuple(_directions(attributes, "input", scanned))
    gives = tuple(_directions(attributes, "output", len(collected)))

    def run(values: Mapping[str, Any]) -> Sequence[Any]:
        operands = [values[name] for name in node.inputs]
        carried = operands[:states]
        sequences = [
            np.moveaxis(to_host(value), axis, 0)[::step]
            for value, (axis, step) in zip(operands[states:], takes, strict=True)
        ]
        collections: list[list[Any]] = [[] for _ in collected]
        for iteration, slices in enumerate(zip(*sequences, strict=True)):
            results = body.run(values, (*carried, *slices), iteration)
            carried = results[:states]
            _collect(collections, results[states:])
        stacks = map(_stack, collections, collected)
        return [
            *carried,
            *(np.moveaxis(stack[::step], 0, axis) for stack, (axis, step) in zip(stacks, gives, strict=True)),
        ]

    return run


def _directions(attributes: Mapping[str, Any], what: str, count: int) -> Iterable[tuple[int, int]]:
    """The axis and the step of each scan input or output."""
    axes = attributes.get(f"scan_{what}_axes") or [0] * count
    directions = attributes.get(f"scan_{what}_directions") or [0] * count
    return ((axis, -1 if direction else 1) for axis, direction in zip(axes, directions, strict=True))


def _collect(collections: Sequence[list[Any]], results: Sequence[Any]) -> None:
    for collection, result in zip(collections, results, strict=True):
        collection.append(to_host(result))


def _stack(collection: Sequence[Array], declared: Value) -> Array:
    """What was collected, along a new first axis; with nothing collected all that is known is what is declared."""
    if collection:
        return np.stack(collection)
    if not isinstance(declared.type, TensorType):
        raise ValueError(f"the type of scan output {declared.name!r} is not declared, and no trip was made")
    dims = (dim if isinstance(dim, int) else 0 for dim in declared.type.dims or ())
    return np.zeros((0, *dims), dtype_of(declared.type.elem_type))


def _scalar(name: str, value: Array) -> Any:
    """The one element of a condition or a number of trips."""
    value = to_host(value)
    if value.size != 1:
        raise ValueError(f"{name!r} must be one element, got {value.size}")
    return value.item()
