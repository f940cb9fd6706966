"""MC-ALIAS-001 to 004, 013 and 015: the ``output_alias`` entries of a node, by port."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.diagnostics import Diagnostic
from mutcache.model import Graph, Node, PortAlias
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule


def _annotated_nodes(context: Context) -> Iterator[tuple[Graph, Node]]:
    for graph in context.scopes:
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
    root_of = context.classes.root_of
    for index in context.graph.marked:
        node = context.graph.nodes[index]
        first: dict[int, str] = {}
        for alias in filter(lambda alias: _is_formed(node, alias), node.aliases):
            source = node.inputs[alias.input_index]
            earlier = first.setdefault(alias.output_index, source)
            roots = root_of.get(earlier, earlier), root_of.get(source, source)
            if roots[0] != roots[1]:
                output = node.outputs[alias.output_index]
                yield finding(
                    Req.MC_ALIAS_013,
                    f"output {output!r} would be the storage of {earlier!r} (root {roots[0]!r}) "
                    f"and of {source!r} (root {roots[1]!r})",
                    context.graph,
                    node=node,
                    value=output,
                    hint="storages are distinct for as long as the caller lends them: alias one of them",
                )


@rule(Req.MC_ALIAS_015)
def mc_alias_015_update_operators(context: Context) -> Iterator[Diagnostic]:
    """An update operator carries exactly the entry {0, 0, MUST_ALIAS}."""
    for graph in context.scopes:
        for index in graph.marked:
            node = graph.nodes[index]
            if not node.is_cache_update or not all(_is_formed(node, alias) for alias in node.aliases):
                continue
            ports = [(alias.output_index, alias.input_index) for alias in node.aliases]
            if ports != [(0, 0)] and len({output for output, _ in ports}) == len(ports):
                shown = ", ".join(f"{{{output}, {source}, MUST_ALIAS}}" for output, source in ports) or "no entry"
                yield finding(
                    Req.MC_ALIAS_015,
                    f"{node.op_type} carries {shown} in output_alias, it must be exactly {{0, 0, MUST_ALIAS}}",
                    graph,
                    node=node,
                    value=node.outputs[0] if node.outputs else "",
                    hint="the operator writes in place; the functional form of a dense update is TensorScatter",
                )
