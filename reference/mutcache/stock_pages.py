"""Identity and SequenceLength of quantized containers, in operators that stock onnx accepts.

Stock onnx has no sequences of some element types in these two (BFLOAT16 among them), though pages may decode to any. In
the projection their places take operators of this package's domain that no model can contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mutcache.decode import decode_type
from mutcache.model import DOMAIN, STANDARD_DOMAINS, page_type
from mutcache.proto.onnx_ml import FunctionProto, ModelProto, NodeProto, ValueInfoProto

#: The standard operators to what stands in for them.
SUBSTITUTES: Final[Mapping[str, str]] = {"Identity": "PagesIdentity", "SequenceLength": "PagesLength"}


def container_names(model: ModelProto) -> frozenset[str]:
    """The names that are containers of quantized tensors in some graph of the model.

    One set for all graphs: a tensor that bears such a name elsewhere loses nothing but what stock onnx knows of its
    elements through Identity.
    """
    if not model.quantizations:
        return frozenset()
    found = {
        entry.name
        for entries in _entries(model)
        for entry in entries
        if entry.HasField("type") and page_type(decode_type(entry.type)) is not None
    }
    functions = {(body.domain, body.name, body.overload): body for body in model.functions}
    edges: dict[str, set[str]] = {}
    for source, target in _edges(model, functions):
        if source and target:
            edges.setdefault(source, set()).add(target)
    pending = list(found)
    while pending:
        for target in edges.get(pending.pop(), ()):
            if target not in found:
                found.add(target)
                pending.append(target)
    return frozenset(found)


def substitute(nodes: Iterable[NodeProto], names: frozenset[str]) -> bool:
    """Replace the two operators where they take one of ``names``, at every depth; whether there was such a place."""
    changed = False
    for node in _within(nodes) if names else ():
        name = SUBSTITUTES.get(node.op_type)
        if name is not None and node.domain in STANDARD_DOMAINS and not names.isdisjoint(node.input):
            node.op_type, node.domain = name, DOMAIN
            changed = True
    return changed


def _entries(model: ModelProto) -> Iterator[Iterable[ValueInfoProto]]:
    yield from (model.graph.input, model.graph.output, model.graph.value_info)
    yield from (function.value_info for function in model.functions)
    for nodes in _bodies(model):
        for node in _within(nodes):
            for graph in _held(node):
                yield from (graph.input, graph.output, graph.value_info)


def _edges(model: ModelProto, functions: Mapping[tuple[str, str, str], FunctionProto]) -> Iterator[tuple[str, str]]:
    """From a name to another that is the same kind of value."""
    for nodes in _bodies(model):
        for node in _within(nodes):
            function = functions.get((node.domain, node.op_type, node.overload))
            if function is not None:
                yield from zip(node.input, function.input, strict=False)
                yield from zip(function.output, node.output, strict=False)
            elif node.op_type in ("Identity", "PagedCacheUpdate"):
                yield from zip(node.input[:1], node.output[:1], strict=False)
            for graph in _held(node):
                results = [value.name for value in graph.output]
                skipped = 1 if node.op_type == "Loop" else 0
                yield from zip(results[skipped:], node.output, strict=False)
                formals = [value.name for value in graph.input]
                yield from zip(node.input[2 * skipped :], formals[2 * skipped :], strict=False)


def _bodies(model: ModelProto) -> Iterator[Iterable[NodeProto]]:
    yield model.graph.node
    yield from (function.node for function in model.functions)


def _held(node: NodeProto) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _within(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    pending = [nodes]
    while pending:
        for node in pending.pop():
            yield node
            pending.extend(graph.node for graph in _held(node))
