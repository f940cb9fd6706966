"""Alias classes: which names are one storage, where it comes from, and who mutates it when, in every scope.

Classes are computed from what nodes do: ``output_alias``, the contract of the update operators, the bodies of
control flow and of functions. ``alias_of`` states the same relation by name: the rules compare it with the
classes, they are not computed from it.

A mutation starts a new *version* of its class. The names of a version that a node has mutated are stale for every
later use; a pass-through (``Identity`` with MUST_ALIAS, a body that returns what it was given) adds a name to its
version.

Each graph is a *scope* with classes of its own. A class of a subgraph whose root comes from outside, by capture or
through a carried slot, says from which name. A function is judged once; its formal inputs are roots, and what it
does with them happens to the arguments of every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mutcache.classes import INITIAL, AliasClasses, Link, ModelAliases, Storage, Write
from mutcache.constructs import Construct, construct_of, function_key, slots
from mutcache.decode import decode
from mutcache.digraph import components
from mutcache.model import FunctionKey, Graph, Model, Node
from mutcache.proto.onnx_ml import ModelProto
from mutcache.scopes import free_names, walk

__all__ = [
    "INITIAL",
    "AliasClasses",
    "Link",
    "ModelAliases",
    "Storage",
    "Write",
    "alias_classes",
    "alias_names",
    "analyze",
    "storage_ports",
]


def alias_classes(model: ModelProto | Model) -> ModelAliases:
    """The alias classes of a model: for each scope, value name to root, versions, mutations.

    ``alias_classes(model).main.root_of["updated_cache"]`` is the name of the root in the main graph;
    ``.main.inner[3]["then_branch"].root_of`` speaks of the names in the branch of node 3, and
    ``.storage(name)`` follows a name out of all scopes. Total: what a rule rejects is left out, cycles are cut.

    Raises:
        DecodeError: the model has what protobuf cannot store.
    """
    decoded = model if isinstance(model, Model) else decode(model)
    inference = _Inference(decoded.functions)
    return ModelAliases(inference.scope(decoded.graph), inference.bodies)


def analyze(graph: Graph, functions: Mapping[FunctionKey, Graph] | None = None) -> AliasClasses:
    """The alias classes of one graph that no other encloses, and of its subgraphs; see :func:`alias_classes`."""
    return _Inference(functions or {}).scope(graph)


def alias_names(graph: Graph) -> Iterator[tuple[str, str]]:
    """(value, alias_of) of every entry of ``graph`` that has both."""
    return ((value.name, value.alias_of) for value in graph.annotated if value.name and value.alias_of)


def storage_ports(node: Node) -> Iterator[tuple[int, int]]:
    """The (output, input) indices that ``node`` says are one storage, each output once, absent operands left out.

    An update operator's contract counts whatever it is annotated with (MC-ALIAS-015 compares the two). For control
    flow and calls the bodies count, not these (MC-ALIAS-015 compares them too).
    """
    if node.is_cache_update:
        if any(node.inputs[:1]) and any(node.outputs[:1]):
            yield 0, 0
        return
    seen: set[int] = set()
    for alias in node.aliases:
        output, source = alias.output_index, alias.input_index
        if (
            alias.is_must
            and output not in seen
            and 0 <= output < len(node.outputs)
            and 0 <= source < len(node.inputs)
            and node.outputs[output]
            and node.inputs[source]
        ):
            seen.add(output)
            yield output, source


class _Inference:
    """Builds scopes, callees before callers, inner scopes on behalf of the node that holds them."""

    def __init__(self, functions: Mapping[FunctionKey, Graph]) -> None:
        self.functions = functions
        self.bodies: dict[FunctionKey, AliasClasses] = {}
        self._part: dict[Graph, bool] = {}
        for key in _aliasing_functions(functions):
            # Of functions that call each other the first ones do not see what the later ones do; ONNX has no recursion.
            self.bodies[key] = self.scope(functions[key])

    def scope(self, graph: Graph, outer: AliasClasses | None = None, holder: int = -1) -> AliasClasses:
        """The classes of ``graph``; those of ``outer`` must be known as far as the node ``holder`` uses them."""
        classes = AliasClasses(graph, outer, holder)
        classes.calls = dict(_calls(graph, self.bodies))
        for link in self._port_links(classes):
            classes.links.setdefault(link.output, link)  # a second producer breaks SSA, which the base check reports
            if link.mutates:
                classes.writes.append(Write(link.node, link.source))
        for value in graph.inputs:
            if value.is_mutable and value.name and value.name not in classes.links:
                _add_root(classes, value.name)
        held = (index for index in graph.nested if any(map(self._takes_part, graph.nodes[index].subgraphs.values())))
        constructs = sorted({*classes.calls, *held})
        for index in _in_order_of_aliases(classes, constructs):
            self._construct(classes, index)
        if constructs:
            classes.links = {link.output: link for link in sorted(classes.links.values(), key=lambda link: link.node)}
            classes.writes = sorted(dict.fromkeys(classes.writes), key=lambda write: write.node)
        _finish(classes)
        return classes

    def _takes_part(self, graph: Graph) -> bool:
        """Whether ``graph``, or a subgraph at any depth, aliases or mutates anything, or calls what does."""
        known = self._part.get(graph)
        if known is None:
            known = bool(graph.marked or graph.annotated or any(_calls(graph, self.bodies))) or any(
                self._takes_part(subgraph)
                for index in graph.nested
                for subgraph in graph.nodes[index].subgraphs.values()
            )
            self._part[graph] = known
        return known

    def _port_links(self, classes: AliasClasses) -> Iterator[Link]:
        """The links of nodes that say themselves which ports are one storage."""
        for index in classes.graph.marked:
            node = classes.graph.nodes[index]
            is_call = function_key(node) in self.functions
            if node.is_cache_update or not (is_call or construct_of(node) not in (None, Construct.OTHER)):
                mutates = not (node.is_standard and node.op_type == "Identity")
                for output_index, input_index in storage_ports(node):
                    yield Link(index, node.inputs[input_index], node.outputs[output_index], mutates)

    def _construct(self, classes: AliasClasses, index: int) -> None:
        """The links and writes of a node that aliases through bodies."""
        node = classes.graph.nodes[index]
        for name in classes.operands(index):
            if name in classes.links:
                _settle(classes, name)
        if index in classes.calls:
            self._call(classes, node)
        if not node.subgraphs:
            return
        bodies = {attribute: self.scope(body, classes, index) for attribute, body in node.subgraphs.items()}
        classes.inner[index] = bodies
        match construct_of(node):
            case Construct.BRANCH:
                _branches(classes, node, tuple(bodies.values()))
            case Construct.LOOP | Construct.SCAN:
                for body in bodies.values():
                    _iterations(classes, node, body)
            case _:
                _captured_writes(classes, node, bodies.values())

    def _call(self, classes: AliasClasses, node: Node) -> None:
        body = self.bodies[classes.calls[node.index]]
        arguments = {value.name: name for value, name in zip(body.graph.inputs, node.inputs, strict=False) if name}
        for formal in body.mutations:
            if formal in arguments:
                _write(classes, node, arguments[formal])
        for position, output in enumerate(node.outputs[: len(body.graph.outputs)]):
            formal = returned_formal(body, position)
            if output and formal in arguments:
                _link(classes, Link(node.index, arguments[formal], output, formal in body.mutations))


def returned_formal(body: AliasClasses, position: int) -> str:
    """The formal input whose storage the output at ``position`` of a loop body or function is, or "".

    An output that bears the formal's own name passes the storage on if the formal is READ_WRITE. A READ_ONLY one is
    a value: the caller receives what a model without annotations gives it, a copy of its own.
    """
    if not 0 <= position < len(body.graph.outputs):
        return ""
    name = body.graph.outputs[position].name
    root = body.root_of.get(name, "")
    formal = next((value for value in body.graph.inputs if value.name == root), None)
    if formal is None or root in body.links or (name == root and not formal.is_mutable):
        return ""
    return root


def returned_capture(body: AliasClasses, position: int) -> str:
    """The captured name whose storage the output at ``position`` of a subgraph is, or ""."""
    if not 0 <= position < len(body.graph.outputs):
        return ""
    name = body.graph.outputs[position].name
    if name not in body.links:
        return ""
    base = body.base_of[name]
    return base if base not in body.defined and body.outer is not None else ""


def captured_writes(body: AliasClasses) -> dict[Storage, str]:
    """The storages around ``body`` that it mutates by capture, each with the captured name."""
    assert body.outer is not None
    bases = (body.base_of[write.source] for write in body.writes)
    found: dict[Storage, str] = {}
    for base in bases:
        if base not in body.defined:
            found.setdefault(body.outer.storage(base), base)
    return found


def _branches(classes: AliasClasses, node: Node, branches: tuple[AliasClasses, ...]) -> None:
    """An output of an If is the storage that its branches return; MC-FLOW-001 and 002 compare the branches."""
    mutated: dict[Storage, str] = {}
    for branch in branches:
        for storage, name in captured_writes(branch).items():
            mutated.setdefault(storage, name)
    for name in mutated.values():
        _write(classes, node, name)
    for position, output in enumerate(node.outputs):
        source = next(filter(None, (returned_capture(branch, position) for branch in branches)), "")
        if output and source:
            storage = classes.storage(source)
            _link(classes, Link(node.index, mutated.get(storage, source), output, storage in mutated))


def _iterations(classes: AliasClasses, node: Node, body: AliasClasses) -> None:
    """An output of a Loop or Scan is the storage of its initial value if the body returns what it was given."""
    for slot in slots(node, body.graph):
        formal, initial = body.graph.inputs[slot.formal].name, node.inputs[slot.initial]
        mutates = formal in body.mutations
        returns = returned_formal(body, slot.result) == formal
        if not initial or not (mutates or returns):
            continue
        _settle_root(classes, initial)
        body.origins[formal] = initial
        if mutates:
            _write(classes, node, initial)
        if returns and slot.output < len(node.outputs) and node.outputs[slot.output]:
            _link(classes, Link(node.index, initial, node.outputs[slot.output], mutates))
    _captured_writes(classes, node, (body,))


def _captured_writes(classes: AliasClasses, node: Node, bodies: Iterable[AliasClasses]) -> None:
    """What a body mutates though it may run often (MC-FLOW-006)."""
    for body in bodies:
        for name in captured_writes(body).values():
            _write(classes, node, name)


def _link(classes: AliasClasses, link: Link) -> None:
    if link.output not in classes.root_of:
        classes.links.setdefault(link.output, link)


def _write(classes: AliasClasses, node: Node, source: str) -> None:
    classes.writes.append(Write(node.index, source))
    _settle_root(classes, source)


def _settle_root(classes: AliasClasses, name: str) -> None:
    if name not in classes.root_of:
        _settle(classes, name)


def _add_root(classes: AliasClasses, name: str) -> str:
    """Make ``name``, which has its storage from no value of this scope, part of a class, and return its root."""
    root = name
    if classes.outer is not None and name not in classes.defined:
        root = classes.captured.setdefault(classes.outer.storage(name), name)
        classes.origins.setdefault(root, name)
    for known in (root, name):
        classes.root_of[known] = root
        classes.base_of.setdefault(known, known)
        classes.version_of.setdefault(known, INITIAL)
    return root


def _settle(classes: AliasClasses, name: str) -> None:
    """Follow the links of ``name`` to a name whose root is known, and settle every name on the way."""
    links, root_of = classes.links, classes.root_of
    chain: dict[str, None] = {}
    while name in links and name not in root_of and name not in chain:
        chain[name] = None
        name = links[name].source
    if name in chain:  # a cycle has no root: the member defined first stands in for it
        names = list(chain)
        base = root = min(names[names.index(name) :], key=lambda member: links[member].node)
        version = classes.version_of.setdefault(name, INITIAL)
    else:
        root = root_of[name] if name in root_of else _add_root(classes, name)
        base, version = classes.base_of[name], classes.version_of[name]
    for member in reversed(chain):
        link = links[member]
        version = link.node if link.mutates else version
        root_of[member], classes.base_of[member], classes.version_of[member] = root, base, version


def _finish(classes: AliasClasses) -> None:
    """Settle what is left, and collect classes and mutations."""
    for output in classes.links:
        _settle_root(classes, output)
    for write in classes.writes:
        _settle_root(classes, write.source)
    if classes.outer is not None and classes.writes:
        # What is only read under another captured name of a class goes stale with it.
        for name in sorted(free_names((classes.graph,))):
            if name not in classes.root_of and classes.outer.storage(name) in classes.captured:
                _add_root(classes, name)
    members: dict[str, list[str]] = {root: [root] for name, root in classes.root_of.items() if name == root}
    for name, root in classes.root_of.items():
        if name != root and name not in classes.links:
            members[root].append(name)
    for link in classes.links.values():
        root = classes.root_of[link.output]
        if link.output != root:
            members[root].append(link.output)
    mutations: dict[str, dict[int, None]] = {}
    for write in classes.writes:
        mutations.setdefault(classes.root_of[write.source], {})[write.node] = None
    classes.members = {root: tuple(names) for root, names in members.items()}
    classes.mutations = {root: tuple(nodes) for root, nodes in mutations.items()}


def _in_order_of_aliases(classes: AliasClasses, constructs: list[int]) -> Iterator[int]:
    """``constructs``, each after those whose outputs it uses, directly or by links; cycles are cut.

    So they stand in a sorted graph, but before `mutcache sort` the nodes may be in any order. The caller settles
    the links of each construct before it asks for the next.
    """
    nodes = classes.graph.nodes
    producers = {output: index for index in constructs for output in nodes[index].outputs if output}
    entered: set[int] = set()
    done: set[int] = set()
    for first in constructs:
        pending = [first]
        while pending:
            index = pending[-1]
            waited_for: list[int] = []
            if index not in entered:
                entered.add(index)
                ends = (_end(classes, name) for name in classes.operands(index))
                waited_for = [producers[end] for end in ends if producers.get(end, index) not in entered]
            if waited_for:
                pending += waited_for
                continue
            pending.pop()
            if index not in done:
                done.add(index)
                yield index


def _end(classes: AliasClasses, name: str) -> str:
    """The name at the end of the links of ``name`` that are not settled yet."""
    seen: set[str] = set()
    while name in classes.links and name not in classes.root_of and name not in seen:
        seen.add(name)
        name = classes.links[name].source
    return name


def _calls(graph: Graph, keys: Mapping[FunctionKey, object]) -> Iterator[tuple[int, FunctionKey]]:
    """The nodes of ``graph`` that call one of the functions."""
    if not keys:
        return
    names = {name for _, name, _ in keys}
    for index, proto in enumerate(graph.node_protos):
        if proto.op_type in names:
            key = (proto.domain, proto.op_type, proto.overload)
            if key in keys and not graph.nodes[index].is_cache_update:
                yield index, key


def _aliasing_functions(functions: Mapping[FunctionKey, Graph]) -> list[FunctionKey]:
    """The functions that take part in aliasing, themselves or through those that they call, callees first."""
    seeds = [key for key, body in functions.items() if any(scope.marked or scope.annotated for scope in walk(body))]
    if not seeds:
        return []
    keys = list(functions)
    number = {key: index for index, key in enumerate(keys)}
    called = [
        sorted({number[key] for scope in walk(body) for _, key in _calls(scope, functions)})
        for body in functions.values()
    ]
    component = components(called)  # callees have the smaller numbers
    aliasing = {component[number[key]] for key in seeds}
    order = sorted(range(len(keys)), key=component.__getitem__)
    for index in order:
        if not aliasing.isdisjoint(component[callee] for callee in called[index]):
            aliasing.add(component[index])
    return [keys[index] for index in order if component[index] in aliasing]
