"""MC-ALIAS-010 to 012 and 014: what a mutation demands of its class, and leaves to those who come later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mutcache.diagnostics import Diagnostic
from mutcache.digraph import shortest_path
from mutcache.model import Node
from mutcache.ordering import is_exempt
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule

#: So many paths are looked for; more would take long in a model with very many faults, and tell nobody more.
_MAX_PATHS: Final = 20


def _is_judged(context: Context, root: str) -> bool:
    return root not in context.classes.unjudged and root not in context.cycles


@rule(Req.MC_ALIAS_010)
def mc_alias_010_root_is_mutable_input(context: Context) -> Iterator[Diagnostic]:
    """The root of every mutated class is a READ_WRITE graph input."""
    graph = context.graph
    inputs = {value.name: value for value in graph.inputs}
    for root, mutations in context.classes.mutations.items():
        value = inputs.get(root)
        if not _is_judged(context, root) or (value and (value.is_mutable or value.unknown_access is not None)):
            continue
        if value:
            what, hint = "a READ_ONLY graph input", "set access = READ_WRITE on the graph input"
        elif root in graph.initializers or root in graph.sparse_initializers:
            what, hint = "an initializer", "make it a READ_WRITE graph input without an initializer"
        elif root in context.producers:
            what = f"an intermediate value, made by node {graph.nodes[context.producers[root]].label}"
            hint = "caches are lent by the caller: mutate a READ_WRITE graph input, or use a functional operator"
        else:
            what, hint = "not defined in the graph", "declare it as a READ_WRITE graph input"
        node = graph.nodes[mutations[0]]
        yield finding(
            Req.MC_ALIAS_010,
            f"node {node.label} mutates the storage of {root!r}, which is {what}",
            graph,
            node=node,
            value=root,
            hint=hint,
        )


@rule(Req.MC_ALIAS_011)
def mc_alias_011_no_stale_reads(context: Context) -> Iterator[Diagnostic]:
    """After a mutation nothing uses a name of the version that it mutated."""
    graph, classes = context.graph, context.classes
    mutators = classes.mutators()
    doubled = _operands_of_mutators(context)
    outputs = {value.name for value in graph.outputs}
    paths = 0
    for name, root in classes.root_of.items():
        mutating = mutators.get((root, classes.version_of[name]))
        if not mutating or not _is_judged(context, root):
            continue
        link = classes.links.get(name)
        if link is not None and not link.mutates and link.node > mutating[0]:
            continue  # the pass-through itself is the stale read
        forked = frozenset(mutating)
        mutation = graph.nodes[mutating[0]]
        current = classes.members[root][-1]
        for index in dict.fromkeys(context.uses.get(name, ())):
            if index <= mutating[0] or index in forked or doubled.get((index, root), 0) > 1:
                continue  # forks and repeated operands have their own rules
            if is_exempt(graph, index):
                continue
            hint = "`mutcache sort` moves the read before the mutation"
            if context.components[index] == context.components[mutating[0]]:
                hint = f"no order of the nodes can mend this: the reader needs the mutation; read {current!r} instead"
                if paths < _MAX_PATHS:
                    paths += 1
                    hint += f" ({_path(context, mutating[0], index)})"
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
                f"graph output {name!r} is stale: node {mutation.label} has mutated its storage (root {root!r})",
                graph,
                node=mutation,
                value=name,
                hint=f"no order of the nodes can mend this, outputs are read last; return {current!r} instead",
            )


def _path(context: Context, mutation: int, reader: int) -> str:
    path = shortest_path(context.dependencies, mutation, reader)
    return " -> ".join(context.graph.nodes[index].label for index in path)


@rule(Req.MC_ALIAS_012)
def mc_alias_012_no_forks(context: Context) -> Iterator[Diagnostic]:
    """No version is mutated by two nodes."""
    for (root, _), nodes in context.classes.mutators().items():
        if not _is_judged(context, root):
            continue
        first = context.graph.nodes[nodes[0]]
        for index in nodes[1:]:
            node = context.graph.nodes[index]
            yield finding(
                Req.MC_ALIAS_012,
                f"nodes {first.label} and {node.label} both mutate the same version of {root!r}",
                context.graph,
                node=node,
                value=_operand(context, node, root),
                hint=f"chain them: let node {node.label} take what node {first.label} returns",
            )


def _operand(context: Context, node: Node, root: str) -> str:
    return next((name for name in node.inputs if context.classes.root_of.get(name) == root), root)


def _operands_of_mutators(context: Context) -> dict[tuple[int, str], int]:
    """(node, root) of every mutation to the number of the node's operands that belong to the class."""
    root_of = context.classes.root_of
    found: dict[tuple[int, str], int] = {}
    for root, nodes in context.classes.mutations.items():
        for index in nodes:
            found[index, root] = sum(root_of.get(name) == root for name in context.graph.nodes[index].inputs)
    return found


@rule(Req.MC_ALIAS_014)
def mc_alias_014_one_operand(context: Context) -> Iterator[Diagnostic]:
    """A node that mutates a class has exactly one operand of that class."""
    for (index, root), count in _operands_of_mutators(context).items():
        if count > 1 and _is_judged(context, root):
            node = context.graph.nodes[index]
            operands = [name for name in node.inputs if context.classes.root_of.get(name) == root]
            yield finding(
                Req.MC_ALIAS_014,
                f"node {node.label} mutates {root!r} and takes it as {count} operands: {operands}",
                context.graph,
                node=node,
                value=root,
                hint="a kernel cannot read what it is overwriting: copy the part it needs into a value of its own",
            )
