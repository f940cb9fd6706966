"""Finds the caches of a past/present decoder: graph inputs that grow by ``present = Concat(past, new)``.

This is what ``torch.onnx.export`` writes: each step takes a ``past`` of some length and returns a ``present`` that is
longer by the rows of ``new``; the caller feeds it back as the next ``past``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from mutcache.decode import decode
from mutcache.errors import MutcacheError
from mutcache.model import Dim, Graph, Model, Node, TensorType, ValueType
from mutcache.projection import project
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Phase
from mutcache.schemas import FIXED_WIDTH_TYPES
from mutcache.stock import inferred_types

KEEP_HINT = "if the input is no cache, leave it as it is with keep= (--keep {past})"


class ConvertError(MutcacheError):
    """The model is no decoder that can be converted; ``values["node"]`` is the label of the node at fault, if any."""

    phase = Phase.CHECK


@dataclass(frozen=True, slots=True)
class GrowingCache:
    """One growing pair.

    Attributes:
        past: the graph input with the rows so far.
        new: the value whose rows are appended.
        present: the graph output, ``past`` followed by ``new``.
        axis: the axis along which the cache grows, not negative.
        length: rows appended in one step; None when shape inference does not know.
        node: the Concat.
    """

    past: str
    new: str
    present: str
    axis: int
    length: Dim
    node: Node


def find_growing_caches(model: ModelProto, *, keep: Collection[str] = ()) -> tuple[GrowingCache, ...]:
    """The growing pairs of the main graph, in node order.

    Args:
        model: a model without annotations.
        keep: graph inputs that are no caches although some Concat extends them (an attention mask, for example).

    Raises:
        ConvertError: there is no growing pair, or one that a single position cannot describe.
    """
    decoded = decode(model)
    graph = decoded.graph
    inputs = {value.name for value in graph.inputs}
    for name in keep:
        if name not in inputs:
            raise ConvertError(f"{name!r} is no graph input, so it cannot be kept")
    concats = tuple(_concats(decoded, graph, {name: name for name in inputs.difference(keep)}, set()))
    finder = _Finder(decoded)
    caches = [cache for concat in concats if (cache := finder.cache(concat)) is not None]
    if not caches:
        fixed = [(concat.node.label, name) for concat in concats for name in concat.operands if name]
        note = " of dynamic length ({} extends {!r}, whose length is fixed)".format(*fixed[0]) if fixed else ""
        raise ConvertError(
            f"no cache grows: no Concat of the graph appends to a graph input{note}",
            hint="a growing cache is a graph input of dynamic length whose Concat(past, new) is a graph output",
        )
    caches = [replace(cache, length=length) for cache, length in zip(caches, _lengths(decoded, caches), strict=True)]
    _require_equal_lengths(graph, caches)
    return tuple(caches)


@dataclass(frozen=True, slots=True)
class _Concat:
    """A Concat somewhere in the model; ``operands`` has, for each operand, the graph input that it stands for."""

    graph: Graph
    node: Node
    operands: tuple[str | None, ...]
    axis: int


def _concats(model: Model, graph: Graph, origins: Mapping[str, str], called: set[object]) -> Iterator[_Concat]:
    """Every Concat of ``graph``, its subgraphs and the functions it calls.

    Args:
        model: the model.
        graph: where to look.
        origins: maps the names visible in ``graph`` that stand for an input of the main graph to that input.
        called: the functions and arguments seen so far; a second call with the same ones has nothing new.
    """
    names = dict(origins)
    for node in graph.nodes:
        if node.is_standard and node.op_type == "Identity" and len(node.inputs) == len(node.outputs) == 1:
            if node.inputs[0] in names:
                names[node.outputs[0]] = names[node.inputs[0]]
        elif node.is_standard and node.op_type == "Concat":
            axis = next((attribute.i for attribute in node.proto.attribute if attribute.name == "axis"), 1)
            yield _Concat(graph, node, tuple(names.get(name) for name in node.inputs), axis)
        for body in node.subgraphs.values():
            own = {value.name for value in body.inputs} | set(body.initializers)
            inner = {name: origin for name, origin in names.items() if name not in own}
            if node.op_type == "Loop":
                carried = zip(node.inputs[2:], body.inputs[2:], strict=False)
                inner |= {formal.name: names[actual] for actual, formal in carried if actual in names}
            yield from _concats(model, body, inner, called)
        function = model.functions.get((node.domain, node.op_type, node.proto.overload))
        if function is not None:
            arguments = zip(node.inputs, function.inputs, strict=False)
            formals = {formal.name: names[actual] for actual, formal in arguments if actual in names}
            call = (function.path, frozenset(formals.items()))
            if formals and call not in called:
                called.add(call)
                yield from _concats(model, function, formals, called)


class _Finder:
    """The search of one model; remembers which Concat extends which input."""

    def __init__(self, model: Model) -> None:
        self._graph = model.graph
        self._outputs = {value.name for value in model.graph.outputs}
        self._types = {value.name: value.type for value in model.graph.inputs if isinstance(value.type, TensorType)}
        self._taken: dict[str, Node] = {}

    def may_grow(self, concat: _Concat, index: int) -> bool:
        """Whether an operand is a graph input whose length along the axis of the Concat is left open."""
        tensor = self._types.get(concat.operands[index] or "")
        if tensor is None:
            return False
        if tensor.dims is None:
            return True
        return -len(tensor.dims) <= concat.axis < len(tensor.dims) and not isinstance(tensor.dims[concat.axis], int)

    def cache(self, concat: _Concat) -> GrowingCache | None:
        """The pair that the Concat makes, its length left open; None when no graph input grows here.

        Raises ConvertError when one does, but not as a cache.
        """
        node = concat.node
        index = next((index for index in range(len(concat.operands)) if self.may_grow(concat, index)), None)
        if index is None:
            return None
        past = concat.operands[index] or ""
        tensor = self._types[past]

        def refuse(reason: str, hint: str = "") -> ConvertError:
            return ConvertError(
                f"{node.label}: {reason}", hint=hint or KEEP_HINT.format(past=past), node=node.label, past=past
            )

        if concat.graph is not self._graph:
            raise refuse(
                f"it extends the graph input {past!r} inside {concat.graph.path}",
                "inline functions and branches first: caches must grow in the main graph",
            )
        if index != 0:
            raise refuse(f"the input {past!r} is operand {index}, not the first; a cache grows by Concat(past, new)")
        if len(node.inputs) != 2:
            raise refuse(f"it joins {len(node.inputs)} operands; a cache grows by exactly Concat(past, new)")
        if past in self._taken:
            raise refuse(f"the past {past!r} feeds two Concats; the other is {self._taken[past].label}")
        if concat.operands[1] == past:
            raise refuse(f"it appends the past {past!r} to itself")
        present = node.outputs[0] if node.outputs else ""
        if present not in self._outputs:
            raise refuse(f"the grown value {present!r} is not a graph output, so the next step cannot receive it")
        if past in self._outputs:
            raise refuse(f"the past {past!r} is itself a graph output, which the update would overwrite")
        if past in self._graph.initializers or past in self._graph.sparse_initializers:
            raise refuse(
                f"the past {past!r} has an initializer as its default; a mutable input cannot",
                "remove the initializer",
            )
        if tensor.dims is None:
            raise refuse(f"the past {past!r} has no declared shape", "declare its shape, symbolic dimensions included")
        if tensor.elem_type not in FIXED_WIDTH_TYPES:
            raise refuse(f"the past {past!r} has elements of no fixed width, which no cache can hold")
        self._taken[past] = node
        return GrowingCache(past, node.inputs[1], present, concat.axis % len(tensor.dims), None, node)


def _lengths(model: Model, caches: Iterable[GrowingCache]) -> Iterator[Dim]:
    """The length of each cache's new rows: as declared, else as inferred."""
    graph = model.graph
    ports = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    inferred: Mapping[str, ValueType] | None = None
    for cache in caches:
        value = ports.get(cache.new) or graph.value_info.get(cache.new)
        length = _dim(value.type if value else None, cache.axis)
        if length is None:
            if inferred is None:
                inferred = inferred_types(project(model), {each.new for each in caches})
            length = _dim(inferred.get(cache.new), cache.axis)
        yield length


def _dim(value_type: ValueType | None, axis: int) -> Dim:
    dims = value_type.dims if isinstance(value_type, TensorType) else None
    return dims[axis] if dims is not None and axis < len(dims) else None


def _require_equal_lengths(graph: Graph, caches: Iterable[GrowingCache]) -> None:
    """One position serves all caches, so all must grow by the same length.

    Only lengths that can be compared are: numbers, and symbols that the graph inputs declare. A symbol that an
    exporter made up for an intermediate value says nothing.
    """
    tensors = [value.type for value in graph.inputs if isinstance(value.type, TensorType)]
    symbols = {dim for tensor in tensors for dim in tensor.dims or () if isinstance(dim, str)}
    known = [cache for cache in caches if cache.length is not None and symbols.issuperset(_symbols(cache.length))]
    for cache in known[1:]:
        first = known[0]
        if cache.length != first.length:
            raise ConvertError(
                f"caches grow by different lengths: {first.past!r} by {first.length} at {first.node.label}, "
                f"{cache.past!r} by {cache.length} at {cache.node.label}",
                hint="one position serves all caches; " + KEEP_HINT.format(past=cache.past),
                node=cache.node.label,
                lengths=(first.length, cache.length),
            )


def _symbols(length: int | str) -> list[str]:
    """The symbols of a dimension, which may be an expression such as ``past + sequence``."""
    return re.findall(r"[^\W\d][\w.]*", length) if isinstance(length, str) else []
