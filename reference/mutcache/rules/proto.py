"""MC-PROTO: the fields of the delta are used as the version that the model declares allows."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.constructs import function_key
from mutcache.diagnostics import Diagnostic
from mutcache.model import DOMAIN, DOMAIN_VERSION, Graph, Node, Value
from mutcache.proto import IR_VERSION
from mutcache.proto.onnx_ml import FunctionProto, TypeProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule
from mutcache.scopes import walk


@rule(Req.MC_PROTO_002)
def mc_proto_002_ir_version(context: Context) -> Iterator[Diagnostic]:
    """A model that uses a field of the delta declares an IR version whose runtimes know it."""
    if context.model.ir_version >= IR_VERSION:
        return
    first = next(_delta_fields(context), "")
    if first:
        yield finding(
            Req.MC_PROTO_002,
            f"the model declares ir_version {context.model.ir_version} < {IR_VERSION}, but uses {first}",
            context.graph,
            hint=f"set ir_version to {IR_VERSION}: an older runtime would drop the annotations in silence",
        )


def _delta_fields(context: Context) -> Iterator[str]:
    if context.model.proto.quantizations:
        yield "ModelProto.quantizations"
    for graph in context.graphs:
        for value in graph.annotated:
            yield f"{_field(value)} of {value.name!r} in {graph.path}"
        for index in graph.marked:
            if graph.nodes[index].aliases:
                yield f"output_alias of node {graph.nodes[index].label} in {graph.path}"
        for entry in _entries(graph):
            if _is_quantized(entry.type):
                yield f"a quantized tensor type for {entry.name!r} in {graph.path}"


@rule(Req.MC_PROTO_006)
def mc_proto_006_domain_version(context: Context) -> Iterator[Diagnostic]:
    """A graph with operators of the domain imports the version that defines them."""
    for top in (context.graph, *context.model.functions.values()):
        imports = context.model.proto.opset_import if top is context.graph else _function(top).opset_import
        version = next((opset.version for opset in imports if opset.domain == DOMAIN), None)
        first = None if version == DOMAIN_VERSION else next(_operators(context, top), None)
        if first is not None:
            graph, node = first
            yield finding(
                Req.MC_PROTO_006,
                f"node {node.label} is an operator of {DOMAIN}, "
                + ("which is not imported" if version is None else f"of which version {version} is imported"),
                graph,
                node=node,
                hint=f"import version {DOMAIN_VERSION} of {DOMAIN}, the only one there is",
            )


def _function(graph: Graph) -> FunctionProto:
    assert isinstance(graph.proto, FunctionProto)
    return graph.proto


def _operators(context: Context, top: Graph) -> Iterator[tuple[Graph, Node]]:
    """The nodes under ``top`` that are operators of the domain, calls of the model's own functions left out."""
    for graph in walk(top):
        for index in graph.marked:
            node = graph.nodes[index]
            if node.domain == DOMAIN and (node.is_cache_update or function_key(node) not in context.model.functions):
                yield graph, node


def _field(value: Value) -> str:
    return f"alias_of = {value.alias_of!r}" if value.alias_of else "access"


def _entries(graph: Graph) -> Iterator[ValueInfoProto]:
    for field in ("input", "output", "value_info"):
        for entry in getattr(graph.proto, field):
            if isinstance(entry, ValueInfoProto) and not entry.type.HasField("tensor_type"):
                yield entry  # the inputs and outputs of a function are names


def _is_quantized(proto: TypeProto) -> bool:
    while True:
        kind = proto.WhichOneof("value")
        if kind == "sequence_type":
            proto = proto.sequence_type.elem_type
        elif kind == "map_type":
            proto = proto.map_type.value_type
        elif kind == "optional_type":
            proto = proto.optional_type.elem_type
        else:
            return kind == "quantized_tensor_type"


@rule(Req.MC_PROTO_003)
def mc_proto_003_alias_kind(context: Context) -> Iterator[Diagnostic]:
    """Every alias entry has a kind that this version defines."""
    for graph in context.graphs:
        for index in graph.marked:
            node = graph.nodes[index]
            for position, alias in enumerate(node.aliases):
                if not alias.is_must:
                    what = (
                        "UNDEFINED" if alias.kind == ValueAliasProto.UNDEFINED else f"the unknown number {alias.kind}"
                    )
                    yield finding(
                        Req.MC_PROTO_003,
                        f"output_alias[{position}].kind is {what}, only MUST_ALIAS (1) is defined",
                        graph,
                        node=node,
                        hint="set kind to MUST_ALIAS, or remove the entry",
                    )


@rule(Req.MC_PROTO_004)
def mc_proto_004_access(context: Context) -> Iterator[Diagnostic]:
    """Every access is READ_ONLY or READ_WRITE."""
    for graph in context.graphs:
        for value in graph.annotated:
            if value.unknown_access is not None:
                yield finding(
                    Req.MC_PROTO_004,
                    f"access of {value.name!r} is the unknown number {value.unknown_access}, "
                    "only READ_ONLY (0) and READ_WRITE (1) are defined",
                    graph,
                    value=value.name,
                    hint="set access to READ_WRITE for a mutable graph input, or remove the field",
                )
