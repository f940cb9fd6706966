"""MC-ALIAS-005 to 009: ``alias_of``, the same relation by name, compared with the alias classes."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.alias import alias_names
from mutcache.diagnostics import Diagnostic
from mutcache.model import Graph
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule


def _named(context: Context) -> Iterator[tuple[str, str]]:
    """(value, alias_of) of each annotated value of the main graph, each pair once."""
    return iter(dict.fromkeys(alias_names(context.graph)))


def _is_visible(context: Context, name: str) -> bool:
    graph = context.graph
    return (
        name in context.inputs
        or name in context.classes.links
        or name in graph.initializers
        or name in graph.sparse_initializers
        or name in context.producers
    )


def _is_unjudged(context: Context, *names: str) -> bool:
    classes = context.classes
    return any(classes.root_of.get(name) in classes.unjudged for name in names)


@rule(Req.MC_ALIAS_005)
def mc_alias_005_annotations_agree(context: Context) -> Iterator[Diagnostic]:
    """``alias_of`` names an earlier value of the class that ``output_alias`` puts the output in."""
    links, root_of = context.classes.links, context.classes.root_of
    for name, target in _named(context):
        if name not in links or name in context.cycles or not _is_visible(context, target):
            continue
        if _is_unjudged(context, name, target):
            continue
        producer = context.graph.nodes[links[name].node]
        root, other = root_of[name], root_of.get(target, target)
        if root != other:
            message = (
                f"alias_of of {name!r} names {target!r}, the storage of {other!r}, but its producer returns "
                f"{links[name].source!r}, the storage of {root!r}"
            )
        elif target in links and links[target].node >= links[name].node:
            message = (
                f"alias_of of {name!r} (defined by node #{links[name].node}) names {target!r}, "
                f"which is defined no earlier (by node #{links[target].node})"
            )
        else:
            continue
        yield finding(
            Req.MC_ALIAS_005,
            message,
            context.graph,
            node=producer,
            value=name,
            hint=f"name {links[name].source!r}, or any earlier value of its class up to the root {root!r}",
        )


@rule(Req.MC_ALIAS_006)
def mc_alias_006_target_is_visible(context: Context) -> Iterator[Diagnostic]:
    """``alias_of`` names a value that exists."""
    for name, target in _named(context):
        if not _is_visible(context, target):
            yield finding(
                Req.MC_ALIAS_006,
                f"alias_of of {name!r} names {target!r}, which is no value of this graph",
                context.graph,
                value=name,
                hint="renaming values must rename alias_of too (onnx.compose.add_prefix does not)",
            )


@rule(Req.MC_ALIAS_007)
def mc_alias_007_no_cycles(context: Context) -> Iterator[Diagnostic]:
    """No value has its storage from itself."""
    for path in dict.fromkeys(context.cycles.values()):
        yield finding(
            Req.MC_ALIAS_007,
            f"alias cycle: {' -> '.join(map(repr, path))} (each has the storage of the next)",
            context.graph,
            value=path[0],
            hint="a class starts at a graph input that aliases nothing",
        )


def _owner(graph: Graph, context: Context, name: str) -> str:
    if name in context.inputs:
        return "is a graph input, whose storage the caller lends"
    if name in graph.initializers or name in graph.sparse_initializers:
        return "is an initializer, which has storage of its own"
    if name in context.producers:
        return f"is made by node {graph.nodes[context.producers[name]].label}, which returns no storage of an operand"
    return "is defined nowhere in the graph"


@rule(Req.MC_ALIAS_008)
def mc_alias_008_producer_aliases(context: Context) -> Iterator[Diagnostic]:
    """``alias_of`` is established by the producer of the value."""
    for name, target in _named(context):
        if name not in context.classes.links and name not in context.cycles:
            yield finding(
                Req.MC_ALIAS_008,
                f"{name!r} has alias_of = {target!r}, but {_owner(context.graph, context, name)}",
                context.graph,
                value=name,
                hint="add output_alias to the producing node, or remove alias_of",
            )


@rule(Req.MC_ALIAS_009)
def mc_alias_009_outputs_say_so(context: Context) -> Iterator[Diagnostic]:
    """A graph output whose root is a graph input carries ``alias_of``."""
    for output in context.graph.outputs:
        root = context.classes.root_of.get(output.name)
        if root is None or root == output.name or output.alias_of or root not in context.inputs:
            continue
        if output.name in context.inputs:
            continue
        yield finding(
            Req.MC_ALIAS_009,
            f"graph output {output.name!r} is the storage of graph input {root!r}, but has no alias_of",
            context.graph,
            value=output.name,
            hint=f"set alias_of = {root!r} on the graph output: a caller must see which storage it gets",
        )
