"""MC-ALIAS-010 to 012 and 014: what a mutation demands of its class, and leaves to those who come later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mutcache.alias import AliasClasses
from mutcache.constructs import Construct, construct_of
from mutcache.diagnostics import Diagnostic
from mutcache.digraph import shortest_path
from mutcache.model import Node
from mutcache.requirements import Req
from mutcache.rules.registry import Context, Scope, finding, rule
from mutcache.scopes import captures, is_shape_reader

#: So many paths are looked for; more would take long in a model with very many faults, and tell nobody more.
_MAX_PATHS: Final = 20


@rule(Req.MC_ALIAS_010)
def mc_alias_010_root_is_mutable_input(context: Context) -> Iterator[Diagnostic]:
    """The root of every mutated class is a READ_WRITE graph input."""
    for scope in context.scopes:
        classes = scope.classes
        inputs = {value.name: value for value in scope.graph.inputs}
        for root in classes.mutations:
            value = inputs.get(root)
            if root in classes.origins or scope.is_cyclic(root):
                continue
            if value and (value.is_mutable or value.unknown_access is not None or scope.is_function):
                continue  # of the formal inputs of functions the calls decide (MC-FLOW-007), of others MC-ACCESS-001
            what, hint = _what(scope, root)
            for at, index in _writers(classes, root):
                node = at.graph.nodes[index]
                yield finding(
                    Req.MC_ALIAS_010,
                    f"node {node.label} mutates the storage of {root!r}, which is {what}",
                    at.graph,
                    node=node,
                    value=root,
                    hint=hint,
                )
                break  # one mutation of a class is enough to say so


def _what(scope: Scope, root: str) -> tuple[str, str]:
    """What a root is that cannot be mutated, and what to do."""
    graph = scope.graph
    if root in scope.inputs and scope.classes.outer is None:
        return "a READ_ONLY graph input", "set access = READ_WRITE on the graph input"
    if root in scope.inputs:
        return (
            f"an input of {graph.path} that carries no storage",
            "only carried slots of a Loop and states of a Scan hand on the storage of their initial value",
        )
    if root in graph.initializers or root in graph.sparse_initializers:
        return "an initializer", "make it a READ_WRITE graph input without an initializer"
    if root in scope.producers:
        return (
            f"an intermediate value, made by node {graph.nodes[scope.producers[root]].label}",
            "caches are lent by the caller: mutate a READ_WRITE graph input, or use a functional operator",
        )
    return "not defined in the graph", "declare it as a READ_WRITE graph input"


def _writers(classes: AliasClasses, root: str) -> Iterator[tuple[AliasClasses, int]]:
    """The nodes that mutate the class themselves, in subgraphs too. Calls are left out: MC-FLOW-007 judges them."""
    storage = classes.storage(root)
    for index in classes.mutations[root]:
        if index in classes.inner:
            for body in classes.inner[index].values():
                for inner in body.mutations:
                    if body.storage(inner) == storage:
                        yield from _writers(body, inner)
        elif index not in classes.calls:
            yield classes, index


@rule(Req.MC_ALIAS_011)
def mc_alias_011_no_stale_reads(context: Context) -> Iterator[Diagnostic]:
    """After a mutation nothing uses a name of the version that it mutated."""
    for scope in context.scopes:
        if scope.classes.writes:
            yield from _stale_reads(scope)


def _stale_reads(scope: Scope) -> Iterator[Diagnostic]:
    graph, classes = scope.graph, scope.classes
    outputs = {value.name for value in graph.outputs}
    doubled = {(index, root) for index, root, operands in _operands_of_mutators(scope) if len(operands) > 1}
    paths = 0
    for name, root in classes.root_of.items():
        mutating = scope.mutators.get((root, classes.version_of[name]))
        if not mutating or scope.is_cyclic(root) or (mutating[0], root) in scope.lost:
            continue
        link = classes.links.get(name)
        if link is not None and not link.mutates and link.node > mutating[0]:
            continue  # the pass-through itself is the stale read
        forked = frozenset(mutating)
        mutation = graph.nodes[mutating[0]]
        current = classes.members[root][-1]
        for index in dict.fromkeys(scope.uses.get(name, ())):
            if index <= mutating[0] or index in forked or (index, root) in doubled:
                continue  # forks and repeated operands have their own rules
            if is_shape_reader(graph.nodes[index]):
                continue
            hint = "`mutcache sort` moves the read before the mutation"
            if scope.components[index] == scope.components[mutating[0]]:
                hint = f"no order of the nodes can mend this: the reader needs the mutation; read {current!r} instead"
                if paths < _MAX_PATHS:
                    paths += 1
                    hint += f" ({_path(scope, mutating[0], index)})"
            yield finding(
                Req.MC_ALIAS_011,
                f"node {graph.nodes[index].label} reads {name!r} after node {mutation.label} has mutated its storage "
                f"(root {root!r})",
                graph,
                node=graph.nodes[index],
                value=name,
                hint=hint,
            )
        if name in outputs:
            yield finding(
                Req.MC_ALIAS_011,
                f"output {name!r} of {graph.path} is stale: node {mutation.label} has mutated its storage "
                f"(root {root!r})",
                graph,
                node=mutation,
                value=name,
                hint=f"no order of the nodes can mend this, outputs are read last; return {current!r} instead",
            )


def _path(scope: Scope, mutation: int, reader: int) -> str:
    path = shortest_path(scope.dependencies, mutation, reader)
    return " -> ".join(scope.graph.nodes[index].label for index in path)


@rule(Req.MC_ALIAS_012)
def mc_alias_012_no_forks(context: Context) -> Iterator[Diagnostic]:
    """No version is mutated by two nodes."""
    for scope in context.scopes:
        for (root, _), nodes in scope.mutators.items():
            if len(nodes) == 1 or scope.is_cyclic(root):
                continue
            first = scope.graph.nodes[nodes[0]]
            for index in nodes[1:]:
                node = scope.graph.nodes[index]
                yield finding(
                    Req.MC_ALIAS_012,
                    f"nodes {first.label} and {node.label} both mutate the same version of {root!r}",
                    scope.graph,
                    node=node,
                    value=_operand(scope, node, root),
                    hint=f"chain them: let node {node.label} take what node {first.label} returns",
                )


def _operand(scope: Scope, node: Node, root: str) -> str:
    return next((name for name in node.inputs if scope.classes.root_of.get(name) == root), root)


def _operands_of_mutators(scope: Scope) -> Iterator[tuple[int, str, list[str]]]:
    """(node, root, operands of that class) of every mutation; what an If captures is one operand of it.

    What a Loop or Scan captures is left to MC-FLOW-006.
    """
    classes = scope.classes
    mutated: dict[int, list[str]] = {}
    for root, nodes in classes.mutations.items():
        for index in nodes:
            mutated.setdefault(index, []).append(root)
    for index, roots in mutated.items():
        node = scope.graph.nodes[index]
        operands: dict[str, list[str]] = {root: [] for root in roots}
        for name in node.inputs:
            if (root := classes.root_of.get(name, "")) in operands:
                operands[root].append(name)
        if index in classes.inner and construct_of(node) is Construct.BRANCH:
            captured = {classes.root_of.get(name, ""): name for name in sorted(captures(node, contents=True))}
            for root in operands.keys() & captured.keys():
                operands[root].append(captured[root])
        for root in roots:
            yield index, root, operands[root]


@rule(Req.MC_ALIAS_014)
def mc_alias_014_one_operand(context: Context) -> Iterator[Diagnostic]:
    """A node that mutates a class has exactly one operand of that class."""
    for scope in context.scopes:
        for index, root, operands in _operands_of_mutators(scope):
            # The arguments of a call are judged by MC-FLOW-007.
            if len(operands) > 1 and not scope.is_cyclic(root) and index not in scope.classes.calls:
                node = scope.graph.nodes[index]
                yield finding(
                    Req.MC_ALIAS_014,
                    f"node {node.label} mutates {root!r} and takes it as {len(operands)} operands: {operands}",
                    scope.graph,
                    node=node,
                    value=root,
                    hint="a kernel cannot read what it is overwriting: copy the part it needs into a value of its own",
                )
