"""The execution plan: in which order nodes run, how long values live, and which of them may share storage.

The plan is symbolic: it holds names and no addresses, and needs no sizes. Nodes run in node order, so that every
read of an alias class comes before the mutation that it precedes (MC-PLAN-005), and every node runs, read or not
(MC-PLAN-004).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mutcache.alias import AliasClasses, analyze, storage_ports
from mutcache.check import check_model
from mutcache.decode import decode
from mutcache.errors import PlanError
from mutcache.model import DOMAIN, Graph, Model, Node, TensorType
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.scopes import captures

#: The operators whose aliased output has an in-place kernel. Whatever else carries an alias cannot be executed.
IN_PLACE: Final = frozenset({(DOMAIN, "CacheUpdate"), ("", "Identity")})


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The steps during which a value exists. Graph inputs and initializers begin at -1, graph outputs never end."""

    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """One node.

    Attributes:
        node: the node.
        reads: the values that it uses: its inputs and what its subgraphs capture, each once.
        aliases: output name to the input name whose storage it must have.
        copies: outputs that must own their storage: kernels may return them as views of an alias class, and they
            are used after its next mutation (MC-PLAN-006).
        releases: values made by nodes and that nothing uses after this one. Graph inputs, initializers and
            members of alias classes are never among them (MC-PLAN-002, MC-PLAN-007).
    """

    node: Node
    reads: tuple[str, ...]
    aliases: Mapping[str, str]
    copies: frozenset[str]
    releases: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionPlan:
    """How the main graph of a model is executed.

    Attributes:
        model: the model.
        classes: its alias classes.
        mutable: the READ_WRITE inputs, which the caller binds, in input order.
        steps: the nodes in the order of execution.
        lifetimes: of every value outside the alias classes.
    """

    model: Model
    classes: AliasClasses
    mutable: tuple[str, ...]
    steps: tuple[Step, ...]
    lifetimes: Mapping[str, Lifetime]


def plan(model: ModelProto | Model) -> ExecutionPlan:
    """The execution plan of a model.

    Args:
        model: a ModelProto, which is checked first, or a decoded model that the checker has accepted.

    Raises:
        CheckError: the model violates the specification.
        PlanError: a node asks for an alias that no in-place kernel provides (MC-ALIAS-015), or aliases storage
            inside a subgraph or a function, which this version does not execute.
    """
    if not isinstance(model, Model):
        model = decode(model)
        check_model(model)
    graph = model.graph
    classes = analyze(graph, model.functions)
    _require_executable(model, classes)
    reads = [_reads(node) for node in graph.nodes]
    lifetimes = _lifetimes(graph, classes, reads)
    ending: dict[int, list[str]] = {}
    for name, lifetime in lifetimes.items():
        if lifetime.first >= 0 and lifetime.last is not None:
            ending.setdefault(lifetime.last, []).append(name)
    copies = _copies(graph, classes, reads, lifetimes)
    steps = tuple(
        Step(
            node=node,
            reads=reads[index],
            aliases={node.outputs[output]: node.inputs[source] for output, source in storage_ports(node)},
            copies=copies[index],
            releases=tuple(ending.get(index, ())),
        )
        for index, node in enumerate(graph.nodes)
    )
    mutable = tuple(value.name for value in graph.inputs if value.is_mutable)
    return ExecutionPlan(model, classes, mutable, steps, lifetimes)


def _require_executable(model: Model, classes: AliasClasses) -> None:
    graph = model.graph
    for value in graph.inputs:
        if value.is_mutable and not isinstance(value.type, TensorType):
            raise PlanError(
                f"mutable input {value.name!r} is no dense tensor, and this version executes no other caches",
                hint="use dense caches",
                value=value.name,
            )
    for index in classes.constructs:
        raise PlanError(
            f"{graph.nodes[index].label} aliases or mutates storage inside a subgraph or a function; this version "
            "executes such nodes only in straight-line graphs",
            hint="inline functions and unroll control flow around cache updates",
            node=graph.nodes[index].label,
        )
    for index in graph.marked:
        node = graph.nodes[index]
        operator = ("" if node.is_standard else node.domain, node.op_type)
        ports = tuple(storage_ports(node))
        if ports and (operator not in IN_PLACE or ports != ((0, 0),)):
            (output, source), *_ = ports
            raise PlanError(
                f"{node.label} must give output {node.outputs[output]!r} the storage of {node.inputs[source]!r}, "
                "and there is no in-place kernel that does",
                requirement=Req.MC_ALIAS_015,
                hint="in-place kernels exist for CacheUpdate and Identity, from input 0 to output 0",
                node=node.label,
            )


def _reads(node: Node) -> tuple[str, ...]:
    names = dict.fromkeys(name for name in node.inputs if name)
    if node.subgraphs:
        names.update(dict.fromkeys(sorted(captures(node))))
    return tuple(names)


def _lifetimes(graph: Graph, classes: AliasClasses, reads: list[tuple[str, ...]]) -> dict[str, Lifetime]:
    first = dict.fromkeys((value.name for value in graph.inputs), -1)
    first.update(dict.fromkeys((*graph.initializers, *graph.sparse_initializers), -1))
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in filter(None, node.outputs):
            first[name] = last[name] = index
        for name in reads[index]:
            last[name] = index
    outputs = {value.name for value in graph.outputs}
    return {
        name: Lifetime(start, None if name in outputs else last.get(name, start))
        for name, start in first.items()
        if name not in classes.root_of
    }


def _copies(
    graph: Graph, classes: AliasClasses, reads: list[tuple[str, ...]], lifetimes: Mapping[str, Lifetime]
) -> list[frozenset[str]]:
    """For each node the outputs that may be views of a class and are used at or after its next mutation.

    Any output of a kernel may be a view of anything it read, directly or through views. A graph output outlives
    every mutation, those of the next run included.
    """
    seen_through: dict[str, frozenset[str]] = {}  # value -> roots whose storage it may be a view of
    copies: list[frozenset[str]] = []
    for index, node in enumerate(graph.nodes):
        roots = {classes.root_of[name] for name in reads[index] if name in classes.root_of}
        roots.update(*(seen_through.get(name, ()) for name in reads[index]))
        late: set[str] = set()
        for name in node.outputs if roots else ():
            if name and name not in classes.root_of:
                last = lifetimes[name].last
                if last is None or any(_is_mutated(classes, root, index, last) for root in roots):
                    late.add(name)
                else:
                    seen_through[name] = frozenset(roots)
        copies.append(frozenset(late))
    return copies


def _is_mutated(classes: AliasClasses, root: str, after: int, until: int) -> bool:
    """Whether a node behind ``after``, up to and including ``until``, mutates the class."""
    nodes = classes.mutations.get(root, ())
    following = bisect_right(nodes, after)
    return following < len(nodes) and nodes[following] <= until
