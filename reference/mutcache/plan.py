"""The execution plan: in which order nodes run, how long values live, and which of them may share storage.

The plan is symbolic: it holds names and no addresses, and needs no sizes. In every schedule a read of an alias class
comes before the mutation that it precedes (MC-PLAN-005), and every node runs, read or not (MC-PLAN-004). Each graph
has a plan of its own: the main graph, every subgraph, and the body of a function once for all its calls.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mutcache.alias import alias_classes, storage_ports
from mutcache.check import check_model
from mutcache.classes import AliasClasses, Link, ModelAliases
from mutcache.constructs import Construct, construct_of, function_key
from mutcache.decode import decode
from mutcache.errors import PlanError
from mutcache.memory_plan import MemoryPlan
from mutcache.memory_planner import plan_memory
from mutcache.model import DOMAIN, UPDATES, FunctionKey, Graph, Model, Node, TensorType, page_type
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.schedule import NODE_ORDER, execution_order
from mutcache.scopes import captures

#: The operators whose aliased output has an in-place kernel. Whatever else carries an alias cannot be executed; what
#: control flow and calls alias, their bodies do.
IN_PLACE: Final = frozenset({*((DOMAIN, name) for name in UPDATES), ("", "Identity")})
#: How deep graphs and calls may nest when they are executed, each in the interpreter's stack.
MAX_DEPTH: Final = 100


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The first and the last step that need a value. Inputs and initializers begin at -1, graph outputs never end."""

    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """One node.

    Attributes:
        node: the node.
        reads: the values that it uses: its inputs and what its subgraphs capture, each once.
        aliases: output name to the name of the input or captured value whose storage it must have.
        writes: those of the aliased outputs that are new versions; empty if the node mutates nothing.
        copies: outputs that must own their storage: kernels may return them as views of an alias class, and they
            are used after its next mutation (MC-PLAN-006).
        releases: values made by nodes and that nothing uses after this one. Graph inputs, initializers and
            members of alias classes are never among them (MC-PLAN-002, MC-PLAN-007).
        bodies: the plans of the subgraphs of an If, Loop or Scan, by attribute.
        function: the local function that the node calls, or None.
    """

    node: Node
    reads: tuple[str, ...]
    aliases: Mapping[str, str]
    writes: tuple[str, ...]
    copies: frozenset[str]
    releases: tuple[str, ...]
    bodies: Mapping[str, GraphPlan]
    function: FunctionKey | None


@dataclass(frozen=True, slots=True, eq=False)
class GraphPlan:
    """How one graph is executed.

    Attributes:
        classes: its alias classes.
        steps: the nodes in the order of execution.
        lifetimes: of every value that the graph defines outside the alias classes.
        depth: how deep graphs and calls nest in it, itself included.
    """

    classes: AliasClasses
    steps: tuple[Step, ...]
    lifetimes: Mapping[str, Lifetime]
    depth: int

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.classes.graph


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionPlan:
    """How a model is executed.

    Attributes:
        model: the model.
        mutable: the READ_WRITE inputs, which the caller binds, in input order.
        main: the plan of the main graph.
        functions: the plans of the functions that a run may call.
        memory: what a run needs, in place and copying; None unless the plan was made for given sizes.
    """

    model: Model
    mutable: tuple[str, ...]
    main: GraphPlan
    functions: Mapping[FunctionKey, GraphPlan]
    memory: MemoryPlan | None = None

    @property
    def classes(self) -> AliasClasses:
        """The alias classes of the main graph."""
        return self.main.classes

    @property
    def steps(self) -> tuple[Step, ...]:
        """The nodes of the main graph in the order of execution."""
        return self.main.steps

    @property
    def lifetimes(self) -> Mapping[str, Lifetime]:
        """Of every value of the main graph outside the alias classes."""
        return self.main.lifetimes


def plan(
    model: ModelProto | Model, dims: Mapping[str, int] | None = None, *, schedule: str = NODE_ORDER
) -> ExecutionPlan:
    """The execution plan of a model.

    Args:
        model: a ModelProto, which is checked first, or a decoded model that the checker has accepted.
        dims: a size for every symbolic dimension, and values of those integer inputs of one element on which sizes
            depend. With it the plan has ``memory``; only that needs sizes.
        schedule: the order of execution, see :mod:`mutcache.schedule`: ``node-order`` or ``random:SEED``. It holds
            for each graph by itself, subgraphs and functions included.

    Raises:
        CheckError: the model violates the specification.
        PlanError: a node asks for an alias that no in-place kernel provides (MC-ALIAS-015); a Scan is of operator
            set 8; graphs and calls nest too deeply; there is no such schedule; or a dimension has no size, or an
            impossible one.
    """
    if not isinstance(model, Model):
        model = decode(model)
        check_model(model)
    for value in model.graph.inputs:
        if value.is_mutable and not isinstance(value.type, TensorType) and page_type(value.type) is None:
            raise PlanError(
                f"mutable input {value.name!r} {'has no type' if value.type is None else 'is no cache'}",
                hint="declare a tensor, or a sequence of or map to quantized tensors",
                value=value.name,
            )
    planner = _Planner(model, alias_classes(model), schedule)
    main = planner.graph(planner.aliases.main, _Role.MAIN)
    mutable = tuple(value.name for value in model.graph.inputs if value.is_mutable)
    memory = None if dims is None else plan_memory(model, planner.aliases, dims, schedule=schedule)
    return ExecutionPlan(model, mutable, main, planner.functions, memory)


class _Role(enum.Enum):
    """What becomes of the outputs of a graph."""

    MAIN = enum.auto()  # a caller keeps them, through the next run
    ONCE = enum.auto()  # a branch or function: the graph around it uses them, and knows what they may be views of
    REPEATED = enum.auto()  # the body of a loop: they live through further executions of it


class _Planner:
    """Plans the graphs of one model."""

    def __init__(self, model: Model, aliases: ModelAliases, schedule: str) -> None:
        self.aliases = aliases
        self.functions: dict[FunctionKey, GraphPlan] = {}
        self._model = model
        self._schedule = schedule

    def graph(self, classes: AliasClasses, role: _Role, around: int = 0) -> GraphPlan:
        """The plan of a graph inside ``around`` others."""
        _require_depth(classes.graph, around + 1)
        links: dict[int, list[Link]] = {}
        for link in classes.links.values():
            links.setdefault(link.node, []).append(link)
        nodes = [classes.graph.nodes[index] for index in execution_order(classes, self._schedule)]
        inside = [self._inside(classes, node, around + 1) for node in nodes]
        reads = [_reads(node) for node in nodes]
        lifetimes = _lifetimes(classes, nodes, reads)
        ending: dict[int, list[str]] = {}
        for name, lifetime in lifetimes.items():
            if lifetime.first >= 0 and lifetime.last is not None:
                ending.setdefault(lifetime.last, []).append(name)
        copies = _copies(classes, nodes, reads, lifetimes, role)
        steps = tuple(
            Step(
                node=node,
                reads=reads[number],
                aliases={link.output: link.source for link in links.get(node.index, ())},
                writes=tuple(link.output for link in links.get(node.index, ()) if link.mutates),
                copies=copies[number],
                releases=tuple(ending.get(number, ())),
                bodies=bodies,
                function=function,
            )
            for number, (node, (bodies, function)) in enumerate(zip(nodes, inside, strict=True))
        )
        held = [body.depth for bodies, _ in inside for body in bodies.values()]
        held += [self.functions[function].depth for _, function in inside if function is not None]
        return GraphPlan(classes, steps, lifetimes, 1 + max(held, default=0))

    def _inside(
        self, classes: AliasClasses, node: Node, around: int
    ) -> tuple[Mapping[str, GraphPlan], FunctionKey | None]:
        """What ``node`` executes besides itself."""
        key = function_key(node)
        if key in self._model.functions and not node.is_cache_update:
            self._function(key, around)
            return {}, key
        kind = construct_of(node)
        if kind in (None, Construct.OTHER):
            _require_kernel(node)
            return {}, None
        if kind is Construct.SCAN and any(len(node.inputs) != len(body.inputs) for body in node.subgraphs.values()):
            raise PlanError(
                f"{node.label} is a Scan of operator set 8, which runs its body on slices of a batch",
                hint="convert the model to operator set 9 or later",
                node=node.label,
            )
        role = _Role.ONCE if kind is Construct.BRANCH else _Role.REPEATED
        known = classes.inner.get(node.index, {})
        return {
            attribute: self.graph(known.get(attribute) or AliasClasses(body, classes, node.index), role, around)
            for attribute, body in node.subgraphs.items()
        }, None

    def _function(self, key: FunctionKey, around: int) -> None:
        body = self._model.functions[key]
        if key in self.functions:
            _require_depth(body, around + self.functions[key].depth)
        else:
            classes = self.aliases.functions.get(key) or AliasClasses(body)
            self.functions[key] = self.graph(classes, _Role.ONCE, around)


def _require_depth(graph: Graph, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise PlanError(
            f"graphs and calls nest more than {MAX_DEPTH} deep at {graph.path}", hint="inline some of the functions"
        )


def _require_kernel(node: Node) -> None:
    operator = ("" if node.is_standard else node.domain, node.op_type)
    ports = tuple(storage_ports(node))
    if ports and (operator not in IN_PLACE or ports != ((0, 0),)):
        (output, source), *_ = ports
        raise PlanError(
            f"{node.label} must give output {node.outputs[output]!r} the storage of {node.inputs[source]!r}, "
            "and there is no in-place kernel that does",
            requirement=Req.MC_ALIAS_015,
            hint="in-place kernels exist for CacheUpdate, PagedCacheUpdate and Identity, from input 0 to output 0",
            node=node.label,
        )


def _reads(node: Node) -> tuple[str, ...]:
    names = dict.fromkeys(name for name in node.inputs if name)
    if node.subgraphs:
        names.update(dict.fromkeys(sorted(captures(node))))
    return tuple(names)


def _lifetimes(classes: AliasClasses, nodes: Sequence[Node], reads: Sequence[tuple[str, ...]]) -> dict[str, Lifetime]:
    graph = classes.graph
    first = dict.fromkeys((value.name for value in graph.inputs), -1)
    first.update(dict.fromkeys((*graph.initializers, *graph.sparse_initializers), -1))
    last: dict[str, int] = {}
    for step, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            first[name] = last[name] = step
        for name in reads[step]:
            last[name] = step
    outputs = {value.name for value in graph.outputs}
    return {
        name: Lifetime(start, None if name in outputs else last.get(name, start))
        for name, start in first.items()
        if name not in classes.root_of
    }


def _copies(
    classes: AliasClasses,
    nodes: Sequence[Node],
    reads: Sequence[tuple[str, ...]],
    lifetimes: Mapping[str, Lifetime],
    role: _Role,
) -> list[frozenset[str]]:
    """For each step the outputs that may be views of a class and are used at or after its next mutation.

    Any output of a kernel or body may be a view of anything it read, directly or through views. An output of the
    main graph outlives every mutation, those of the next run included. What leaves a body may stay a view of a class
    if nothing in the body mutates it afterwards: the graph around it sees the same storage among what the node reads,
    and decides for itself. What leaves the body of a loop meets the mutations of the next iteration.
    """
    step_of = {node.index: step for step, node in enumerate(nodes)}
    mutations = {root: sorted(step_of[index] for index in indices) for root, indices in classes.mutations.items()}

    def is_late(root: str, step: int, last: int | None) -> bool:
        if last is not None:
            return _is_between(mutations.get(root, ()), step, last)
        match role:
            case _Role.MAIN:
                return True
            case _Role.ONCE:
                return _is_between(mutations.get(root, ()), step, len(nodes))
            case _Role.REPEATED:
                return root in mutations

    return _find_views(classes, nodes, reads, lifetimes, is_late)


def _find_views(
    classes: AliasClasses,
    nodes: Sequence[Node],
    reads: Sequence[tuple[str, ...]],
    lifetimes: Mapping[str, Lifetime],
    is_late: Callable[[str, int, int | None], bool],
) -> list[frozenset[str]]:
    seen_through: dict[str, frozenset[str]] = {}  # value -> roots whose storage it may be a view of
    copies: list[frozenset[str]] = []
    for step, node in enumerate(nodes):
        roots = {classes.root_of[name] for name in reads[step] if name in classes.root_of}
        roots.update(*(seen_through.get(name, ()) for name in reads[step]))
        late: set[str] = set()
        for name in node.outputs if roots else ():
            if name and name not in classes.root_of:
                last = lifetimes[name].last
                if any(is_late(root, step, last) for root in roots):
                    late.add(name)
                else:
                    seen_through[name] = frozenset(roots)
        copies.append(frozenset(late))
    return copies


def _is_between(mutations: Sequence[int], after: int, until: int) -> bool:
    """Whether one of the ascending ``mutations`` stands behind ``after``, up to and including ``until``."""
    following = bisect_right(mutations, after)
    return following < len(mutations) and mutations[following] <= until
