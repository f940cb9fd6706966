"""Renaming values in graphs, with everything in a graph that refers to a value by name.

``onnx.compose`` and ``onnx.inliner`` keep the annotations of this specification as fields they do not know, and so
leave the names in ``alias_of`` behind. Here one function says where a graph has names, and every transformation
that renames goes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mutcache.errors import DecodeError, MutcacheError
from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, NodeProto, TensorAnnotation, ValueInfoProto

#: The new name of a value that is visible in one scope; an absent operand, ``""``, is never asked for.
Translate = Callable[[str], str]
#: Given a subgraph and the translation around it, the translation inside.
Enter = Callable[[GraphProto, Translate], Translate]

#: Messages nest no deeper in bytes that protobuf accepts; one that was built in memory could.
MAX_DEPTH: Final = 100


def renamable_copy(model: ModelProto) -> ModelProto:
    """A copy of ``model`` whose names may be changed.

    Raises:
        DecodeError: the model nests deeper than protobuf reads (it was built in memory).
        MutcacheError: the model has training information, whose bindings would have to be renamed too.
    """
    if model.training_info:
        raise MutcacheError(
            "the model has training information, whose names and functions are not rewritten",
            hint="remove it first: model.ClearField('training_info')",
        )
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for _ in nested_graphs(nodes):
            pass
    result = ModelProto()
    result.CopyFrom(model)
    return result


def rename_graph(graph: GraphProto, translate: Translate, enter: Enter) -> None:
    """Rename every value of ``graph``, its subgraphs at any depth included, in place."""
    for entries in (graph.input, graph.output, graph.value_info):
        rename_entries(entries, translate)
    for tensor in graph.initializer:
        tensor.name = _translated(tensor.name, translate)
    for sparse in graph.sparse_initializer:
        sparse.values.name = _translated(sparse.values.name, translate)
        if sparse.indices.name:
            sparse.indices.name = _translated(sparse.indices.name, translate)
    _rename_annotations(graph.quantization_annotation, translate)
    rename_nodes(graph.node, translate, enter)


def rename_nodes(nodes: Iterable[NodeProto], translate: Translate, enter: Enter) -> None:
    """Rename what ``nodes`` consume and produce, and the values of their subgraphs, in place."""
    for node in nodes:
        node.input[:] = [_translated(name, translate) for name in node.input]
        node.output[:] = [_translated(name, translate) for name in node.output]
        for configuration in node.device_configurations:
            for spec in configuration.sharding_spec:
                spec.tensor_name = _translated(spec.tensor_name, translate)
        for graph in subgraphs(node):
            rename_graph(graph, enter(graph, translate), enter)


def rename_entries(entries: Iterable[ValueInfoProto], translate: Translate) -> None:
    """Rename the values that ``entries`` declare, and those whose storage they are said to have, in place."""
    for entry in entries:
        entry.name = _translated(entry.name, translate)
        if entry.alias_of:
            entry.alias_of = _translated(entry.alias_of, translate)


def _rename_annotations(annotations: Iterable[TensorAnnotation], translate: Translate) -> None:
    for annotation in annotations:
        annotation.tensor_name = _translated(annotation.tensor_name, translate)
        for parameter in annotation.quant_parameter_tensor_names:
            parameter.value = _translated(parameter.value, translate)


def _translated(name: str, translate: Translate) -> str:
    if not isinstance(name, str):  # protobuf returns bytes that are not UTF-8 as they are
        raise DecodeError(f"a name of the model is not UTF-8: {name!r}")
    return translate(name) if name else ""


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that ``node`` holds in its attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nested_graphs(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """The graphs inside ``nodes`` at every depth, outer ones first.

    Raises:
        DecodeError: they nest deeper than protobuf reads.
    """
    pending = [(nodes, 1)]
    while pending:
        outer, depth = pending.pop()
        for node in outer:
            for graph in subgraphs(node):
                if depth > MAX_DEPTH:
                    raise DecodeError(f"the model nests subgraphs more than {MAX_DEPTH} levels deep")
                yield graph
                pending.append((graph.node, depth + 1))


def walk_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """``nodes``, and the nodes of the graphs inside them at every depth."""
    nodes = tuple(nodes)
    yield from nodes
    for graph in nested_graphs(nodes):
        yield from graph.node


def defined_names(graph: GraphProto) -> Iterator[str]:
    """The values that ``graph`` itself defines: inputs, initializers, node outputs. One may come twice."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from filter(None, node.output)


def value_names(body: GraphProto | FunctionProto) -> Iterator[str]:
    """Every name of a value that ``body`` itself mentions."""
    if isinstance(body, FunctionProto):
        yield from (*body.input, *body.output)
        for node in body.node:
            yield from filter(None, node.output)
    else:
        yield from defined_names(body)
        yield from (entry.name for entry in body.output)
    yield from (entry.name for entry in body.value_info)
    for node in body.node:
        yield from node.input


class FreshNames:
    """Names that nothing in the model bears."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._number: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        """``name`` itself if it is free, else ``name`` with a number; not free any more in either case."""
        fresh = name
        number = self._number.get(name, 0)
        while fresh in self._taken:
            number += 1
            fresh = f"{name}__{number}"
        self._number[name] = number
        self._taken.add(fresh)
        return fresh
