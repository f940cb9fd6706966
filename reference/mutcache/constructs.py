"""Control flow and calls: how the operands of a node reach the formals of its bodies, and what comes out again."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from mutcache.model import FunctionKey, Graph, Node


class Construct(enum.Enum):
    """What a node does with the graphs that it holds."""

    BRANCH = "If"
    LOOP = "Loop"
    SCAN = "Scan"
    OTHER = "other"  # a vendor's operator, or SequenceMap: nobody says how often it runs its body


def construct_of(node: Node) -> Construct | None:
    """The kind of a node that holds subgraphs; None for one that holds none."""
    if not node.subgraphs:
        return None
    if node.is_standard and node.op_type in ("If", "Loop", "Scan"):
        return Construct(node.op_type)
    return Construct.OTHER


def function_key(node: Node) -> FunctionKey:
    """The function that the node calls, if the model has it."""
    return node.domain, node.op_type, node.proto.overload


@dataclass(frozen=True, slots=True)
class Slot:
    """A carried value of a Loop, or a state variable of a Scan: positions that belong together.

    Attributes:
        initial: input of the node, the initial value.
        formal: input of the body.
        result: output of the body, the formal of the next iteration.
        output: output of the node; there may be fewer.
    """

    initial: int
    formal: int
    result: int
    output: int


def slots(node: Node, body: Graph) -> Iterator[Slot]:
    """The carried slots of a Loop or Scan; none where the counts of the node do not fit its body.

    A Scan of operator set 8 has one input more, and runs its body on slices of a batch: its states are copies.
    """
    kind = construct_of(node)
    if kind is Construct.LOOP:
        # Loop(M, cond, v...) -> v..., scans...     body(iteration, cond, v...) -> cond, v..., scans...
        count, initial, formal, result = len(body.inputs) - 2, 2, 2, 1
    elif kind is Construct.SCAN:
        # Scan(v..., scanned...) -> v..., scans...  body(v..., slices...) -> v..., scans...
        count, initial, formal, result = len(body.inputs) - _scanned(node), 0, 0, 0
        if len(node.inputs) != len(body.inputs):
            return
    else:
        return
    for number in range(min(count, len(node.inputs) - initial, len(body.outputs) - result)):
        yield Slot(initial + number, formal + number, result + number, number)


def scan_outputs(node: Node, body: Graph) -> range:
    """The outputs of a Loop or Scan that collect one value per iteration, by position at the node."""
    kind = construct_of(node)
    carried = len(body.inputs) - (2 if kind is Construct.LOOP else _scanned(node))
    return range(max(carried, 0), len(node.outputs)) if kind in (Construct.LOOP, Construct.SCAN) else range(0)


def is_only_read(node: Node, body: Graph, position: int) -> bool:
    """Whether the body output at ``position`` is a condition or a scan output: read, not carried."""
    if construct_of(node) not in (Construct.LOOP, Construct.SCAN):
        return False
    return all(slot.result != position for slot in slots(node, body))


def _scanned(node: Node) -> int:
    return next((attribute.i for attribute in node.proto.attribute if attribute.name == "num_scan_inputs"), 0)
