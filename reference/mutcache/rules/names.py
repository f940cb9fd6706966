"""MC-ALIAS-005 to 009: ``alias_of``, the same relation by name, compared with the alias classes."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.alias import alias_names
from mutcache.constructs import is_only_read, scan_outputs
from mutcache.diagnostics import Diagnostic
from mutcache.model import Value
from mutcache.requirements import Req
from mutcache.rules.registry import Context, Scope, finding, rule


def _named(scope: Scope) -> Iterator[tuple[str, str]]:
    """(value, alias_of) of each annotated value of the scope, each pair once."""
    return iter(dict.fromkeys(alias_names(scope.graph)))


def _is_later(scope: Scope, name: str, target: str) -> str:
    """Where ``target`` is defined if that is no earlier than ``name``, an output of a node of this scope; or ""."""
    home = scope.classes.find(target)
    index, inner = scope.classes.links[name].node, scope.classes
    while inner is not home and inner.outer is not None:
        index, inner = inner.holder, inner.outer
    link = home.links.get(target)
    return f"node {home.graph.nodes[link.node].label}" if link is not None and link.node >= index else ""


@rule(Req.MC_ALIAS_005)
def mc_alias_005_annotations_agree(context: Context) -> Iterator[Diagnostic]:
    """``alias_of`` names an earlier value of the class that the producer puts the output in."""
    for scope in context.scopes:
        links = scope.classes.links
        for name, target in _named(scope):
            if name not in links or scope.is_cyclic(name) or not scope.is_visible(target):
                continue
            producer = scope.graph.nodes[links[name].node]
            storage, other = scope.classes.storage(name), scope.classes.storage(target)
            later = "" if storage != other else _is_later(scope, name, target)
            if storage != other:
                message = (
                    f"alias_of of {name!r} names {target!r}, the storage of {other.name!r}, but its producer returns "
                    f"{links[name].source!r}, the storage of {storage.name!r}"
                )
            elif later:
                message = (
                    f"alias_of of {name!r} (defined by node {producer.label}) names {target!r}, "
                    f"which is defined no earlier (by {later})"
                )
            else:
                continue
            yield finding(
                Req.MC_ALIAS_005,
                message,
                scope.graph,
                node=producer,
                value=name,
                hint=f"name {links[name].source!r}, or any earlier value of its class up to the root {storage.name!r}",
            )


@rule(Req.MC_ALIAS_006)
def mc_alias_006_target_is_visible(context: Context) -> Iterator[Diagnostic]:
    """``alias_of`` names a value that exists."""
    for scope in context.scopes:
        for name, target in _named(scope):
            if not scope.is_visible(target):
                yield finding(
                    Req.MC_ALIAS_006,
                    f"alias_of of {name!r} names {target!r}, which is no value of this graph"
                    + (" or of one around it" if scope.classes.outer else ""),
                    scope.graph,
                    value=name,
                    hint="renaming values must rename alias_of too (onnx.compose.add_prefix does not)",
                )


@rule(Req.MC_ALIAS_007)
def mc_alias_007_no_cycles(context: Context) -> Iterator[Diagnostic]:
    """No value has its storage from itself."""
    for path in dict.fromkeys(context.cycles.values()):
        (start, name), *_ = path
        places = [repr(other) + (f" in {at.graph.path}" if at is not start else "") for at, other in path]
        yield finding(
            Req.MC_ALIAS_007,
            f"alias cycle: {' -> '.join(places)} (each has the storage of the next)",
            start.graph,
            value=name,
            hint="a class starts at a graph input that aliases nothing",
        )


def _owner(scope: Scope, name: str) -> str:
    graph = scope.graph
    if name in scope.inputs:
        return f"is an input of {graph.path}, whose storage comes from outside"
    if name in graph.initializers or name in graph.sparse_initializers:
        return "is an initializer, which has storage of its own"
    if name in scope.producers:
        return f"is made by node {graph.nodes[scope.producers[name]].label}, which returns no storage of an operand"
    return "is defined nowhere in the graph"


def _is_explained(scope: Scope, name: str) -> bool:
    """Whether a rule of MC-FLOW says why the producer establishes no alias for ``name``."""
    index = scope.producers.get(name)
    if index is None or index not in scope.classes.constructs:
        return False
    node = scope.graph.nodes[index]
    scanned = (
        node.outputs[position : position + 1] == (name,)
        for body in node.subgraphs.values()
        for position in scan_outputs(node, body)
    )
    return any(node_of == index for node_of, _ in scope.lost) or any(scanned)


@rule(Req.MC_ALIAS_008)
def mc_alias_008_producer_aliases(context: Context) -> Iterator[Diagnostic]:
    """``alias_of`` is established by the producer of the value."""
    for scope in context.scopes:
        for name, target in _named(scope):
            if name in scope.classes.links or scope.is_cyclic(name) or _is_explained(scope, name):
                continue
            yield finding(
                Req.MC_ALIAS_008,
                f"{name!r} has alias_of = {target!r}, but {_owner(scope, name)}",
                scope.graph,
                value=name,
                hint="let the producing node alias (output_alias, or a body that returns the storage), "
                "or remove alias_of",
            )


def _silent_outputs(scope: Scope) -> Iterator[tuple[int, Value]]:
    """The outputs without ``alias_of`` that are the storage of an input of the main graph or of a function."""
    root_of = scope.classes.root_of
    for position, output in enumerate(scope.graph.outputs):
        if output.alias_of or output.name not in root_of or output.name in scope.inputs or scope.is_cyclic(output.name):
            continue
        storage = scope.classes.storage(output.name)
        top = scope.context.scope_of[storage.scope]
        if top.classes.outer is None and storage.name in top.inputs:
            yield position, output


@rule(Req.MC_ALIAS_009)
def mc_alias_009_outputs_say_so(context: Context) -> Iterator[Diagnostic]:
    """A graph, subgraph or function output whose root is an input carries ``alias_of``."""
    for scope in context.scopes:
        classes, outer = scope.classes, scope.classes.outer
        for position, output in _silent_outputs(scope):
            root = classes.root_of[output.name]
            if classes in context.called and root in classes.mutations:
                continue  # MC-FLOW-007
            if outer is not None and is_only_read(outer.graph.nodes[classes.holder], scope.graph, position):
                continue
            storage = classes.storage(output.name)
            yield finding(
                Req.MC_ALIAS_009,
                f"output {output.name!r} of {scope.graph.path} is the storage of input {storage.name!r}"
                f"{'' if storage.scope is classes else f' of {storage.scope.graph.path}'}, but has no alias_of",
                scope.graph,
                value=output.name,
                hint=f"set alias_of = {root!r} on the output: a caller must see which storage it gets",
            )
