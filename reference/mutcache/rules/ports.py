"""MC-ALIAS-001 to 004, 013 and 015: the ``output_alias`` entries of a node, by port."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.constructs import Construct, construct_of, function_key, scan_outputs
from mutcache.diagnostics import Diagnostic
from mutcache.model import Graph, Node, PortAlias
from mutcache.requirements import Req
from mutcache.rules.registry import Context, Scope, finding, rule


def _annotated_nodes(context: Context) -> Iterator[tuple[Graph, Node]]:
    for graph in context.graphs:
        for index in graph.marked:
            if graph.nodes[index].aliases:
                yield graph, graph.nodes[index]


def _is_port(names: tuple[str, ...], index: int) -> bool:
    return 0 <= index < len(names) and bool(names[index])


def _is_formed(node: Node, alias: PortAlias) -> bool:
    """Whether rules 001 and 002 and MC-PROTO-003 accept the entry."""
    return alias.is_must and _is_port(node.outputs, alias.output_index) and _is_port(node.inputs, alias.input_index)


def _wrong_port(field: str, index: int, names: tuple[str, ...]) -> str:
    if 0 <= index < len(names):
        return f"{field} {index} names an omitted {field.removesuffix('_index')}"
    return f"{field} {index} is out of range: the node has {len(names)} {field.removesuffix('_index')}(s)"


@rule(Req.MC_ALIAS_001)
def mc_alias_001_output_index(context: Context) -> Iterator[Diagnostic]:
    """``output_index`` is in range and names a present output."""
    for graph, node in _annotated_nodes(context):
        for position, alias in enumerate(node.aliases):
            if not _is_port(node.outputs, alias.output_index):
                yield finding(
                    Req.MC_ALIAS_001,
                    f"output_alias[{position}]: {_wrong_port('output_index', alias.output_index, node.outputs)}",
                    graph,
                    node=node,
                    hint=f"the outputs are {list(node.outputs)}",
                )


@rule(Req.MC_ALIAS_002)
def mc_alias_002_input_index(context: Context) -> Iterator[Diagnostic]:
    """``input_index`` is in range and names a present input."""
    for graph, node in _annotated_nodes(context):
        for position, alias in enumerate(node.aliases):
            if not _is_port(node.inputs, alias.input_index):
                yield finding(
                    Req.MC_ALIAS_002,
                    f"output_alias[{position}]: {_wrong_port('input_index', alias.input_index, node.inputs)}",
                    graph,
                    node=node,
                    hint=f"the inputs are {list(node.inputs)}",
                )


@rule(Req.MC_ALIAS_003)
def mc_alias_003_output_once(context: Context) -> Iterator[Diagnostic]:
    """An output stands in at most one entry."""
    for graph, node in _annotated_nodes(context):
        first: dict[int, int] = {}
        for position, alias in enumerate(node.aliases):
            earlier = first.setdefault(alias.output_index, position)
            if earlier != position and _is_port(node.outputs, alias.output_index):
                output = node.outputs[alias.output_index]
                yield finding(
                    Req.MC_ALIAS_003,
                    f"output {output!r} stands in output_alias[{earlier}] and again in output_alias[{position}]",
                    graph,
                    node=node,
                    value=output,
                    hint="an output has one storage: keep one of the entries",
                )


@rule(Req.MC_ALIAS_004)
def mc_alias_004_input_once(context: Context) -> Iterator[Diagnostic]:
    """An input is aliased by at most one output of its node."""
    for graph, node in _annotated_nodes(context):
        first: dict[int, PortAlias] = {}
        for alias in filter(lambda alias: _is_formed(node, alias), node.aliases):
            earlier = first.setdefault(alias.input_index, alias)
            if earlier.output_index != alias.output_index:
                source = node.inputs[alias.input_index]
                yield finding(
                    Req.MC_ALIAS_004,
                    f"input {source!r} is aliased by output {node.outputs[earlier.output_index]!r} "
                    f"and by output {node.outputs[alias.output_index]!r}",
                    graph,
                    node=node,
                    value=source,
                    hint="a storage leaves a node under one name: remove one of the entries",
                )


@rule(Req.MC_ALIAS_013)
def mc_alias_013_no_merge(context: Context) -> Iterator[Diagnostic]:
    """Two different roots never become one storage."""
    for scope in context.scopes:
        for index in scope.graph.marked:
            node = scope.graph.nodes[index]
            first: dict[int, str] = {}
            for alias in filter(lambda alias: _is_formed(node, alias), node.aliases):
                source = node.inputs[alias.input_index]
                earlier = first.setdefault(alias.output_index, source)
                if earlier == source:
                    continue
                storages = scope.classes.storage(earlier), scope.classes.storage(source)
                if storages[0] != storages[1]:
                    output = node.outputs[alias.output_index]
                    yield finding(
                        Req.MC_ALIAS_013,
                        f"output {output!r} would be the storage of {earlier!r} (root {storages[0].name!r}) "
                        f"and of {source!r} (root {storages[1].name!r})",
                        scope.graph,
                        node=node,
                        value=output,
                        hint="storages are distinct for as long as the caller lends them: alias one of them",
                    )


@rule(Req.MC_ALIAS_015)
def mc_alias_015_update_operators(context: Context) -> Iterator[Diagnostic]:
    """An update carries exactly {0, 0, MUST_ALIAS}; an If carries no entry, loops and calls what their bodies do."""
    for scope in context.scopes:
        for index in scope.graph.marked:
            node = scope.graph.nodes[index]
            if not all(_is_formed(node, alias) for alias in node.aliases):
                continue
            if node.is_cache_update:
                yield from _update_ports(scope, node)
            elif function_key(node) in context.model.functions:
                yield from _body_ports(scope, node, "the function that it calls")
            elif construct_of(node) is Construct.BRANCH and node.aliases:
                yield finding(
                    Req.MC_ALIAS_015,
                    f"If carries {_shown(node)} in output_alias, but has no port for what its branches capture",
                    scope.graph,
                    node=node,
                    value=node.outputs[0],
                    hint="remove the entries: the branches say what an output of the If aliases",
                )
            elif construct_of(node) in (Construct.LOOP, Construct.SCAN):
                yield from _body_ports(scope, node, "its body")


def _shown(node: Node) -> str:
    return ", ".join(f"{{{alias.output_index}, {alias.input_index}, MUST_ALIAS}}" for alias in node.aliases)


def _update_ports(scope: Scope, node: Node) -> Iterator[Diagnostic]:
    ports = [(alias.output_index, alias.input_index) for alias in node.aliases]
    if ports != [(0, 0)] and len({output for output, _ in ports}) == len(ports):
        yield finding(
            Req.MC_ALIAS_015,
            f"{node.op_type} carries {_shown(node) or 'no entry'} in output_alias, "
            "it must be exactly {0, 0, MUST_ALIAS}",
            scope.graph,
            node=node,
            value=node.outputs[0] if node.outputs else "",
            hint="the operator writes in place; the functional form of a dense update is TensorScatter",
        )


def _body_ports(scope: Scope, node: Node, body: str) -> Iterator[Diagnostic]:
    scanned = {position for graph in node.subgraphs.values() for position in scan_outputs(node, graph)}
    for alias in node.aliases:
        output, source = node.outputs[alias.output_index], node.inputs[alias.input_index]
        link = scope.classes.links.get(output)
        if alias.output_index in scanned or (link is not None and (link.node, link.source) == (node.index, source)):
            continue  # the former: MC-FLOW-005
        if any(node_of == node.index for node_of, _ in scope.lost):
            continue  # a rule of MC-FLOW says why the body does not return what it mutates
        returned = "a value of its own" if link is None else f"the storage of {link.source!r}"
        yield finding(
            Req.MC_ALIAS_015,
            f"output_alias says that {output!r} is the storage of {source!r}, but {body} returns {returned}",
            scope.graph,
            node=node,
            value=output,
            hint="the body establishes the alias; the entry may repeat it, or be left out",
        )
