"""Converts a past/present decoder into a mutable-cache model.

Each growing pair ``present = Concat(past, new)`` becomes a READ_WRITE input of capacity ``max_length`` and a
``CacheUpdate`` whose output is the same storage. A new scalar input, the position, is the valid length before the step:

- ``present = CacheUpdate(past, new, position)``;
- whoever read ``past`` reads ``Slice(past, 0, position)``, before the update;
- whoever read ``present`` reads ``Slice(present, 0, position + length of new)``.

Every reader gets exactly the tensor it had, so the other outputs keep their bits and no shape needs to be traced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx

from mutcache.check import check_model
from mutcache.decode import decode
from mutcache.model import DOMAIN, DOMAIN_VERSION, Graph, Model, TensorType
from mutcache.proto import IR_VERSION, from_onnx
from mutcache.proto.onnx_ml import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueAliasProto,
    ValueInfoProto,
)
from mutcache.scopes import walk
from mutcache_tools.growing_caches import ConvertError, GrowingCache, find_growing_caches

#: First version of the standard operators with ``Slice(data, starts, ends, axes)``.
MIN_OPSET = 10


def convert(
    model: onnx.ModelProto | ModelProto,
    max_length: int | str,
    *,
    position_name: str = "position",
    keep: Collection[str] = (),
) -> ModelProto:
    """The decoder with mutable caches; ``model`` is not modified.

    Args:
        model: a decoder whose caches grow by ``present = Concat(past, new)``; tensors may be external data.
        max_length: capacity of every cache along its growing axis: a number of rows, or a symbol of its own.
        position_name: name of the new INT64 scalar input, the valid length of every cache before the step.
        keep: graph inputs that are no caches although some Concat extends them.

    Returns:
        A model without findings of severity error. Inputs and outputs keep their names and
        order; the position comes last.

    Raises:
        ConvertError: the decoder cannot be converted; the message names the node.
        CheckError: the decoder was no valid model to begin with.
    """
    source = from_onnx(model) if isinstance(model, onnx.ModelProto) else model
    decoded = decode(source)
    _require_plain(decoded)
    _require_capacity(decoded, max_length)
    names = _Names(_all_names(decoded))
    if position_name in names.used or not position_name:
        raise ConvertError(
            f"the model already has a value named {position_name!r}",
            hint="choose another name for the new input with position_name= (--position-name NAME)",
        )
    names.used.add(position_name)
    caches = find_growing_caches(source, keep=keep)

    result = ModelProto()
    result.CopyFrom(source)
    result.ir_version = IR_VERSION
    result.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    _rewrite(result.graph, caches, max_length, position_name, names)
    check_model(result)
    return result


def _require_plain(model: Model) -> None:
    """Refuse what is mutable already, and what cannot hold the new nodes."""
    for graph in _graphs(model):
        if graph.annotated or graph.marked:
            raise ConvertError(
                f"the model already has mutable caches, in {graph.path}", hint="convert the original model"
            )
    if DOMAIN in model.opsets or model.ir_version >= IR_VERSION:
        raise ConvertError(
            f"the model claims mutable caches already: it imports {DOMAIN!r} or has IR version {IR_VERSION}",
            hint="convert the original model",
        )
    opset = max(model.opsets.get("", 0), model.opsets.get("ai.onnx", 0))
    if opset < MIN_OPSET:
        raise ConvertError(
            f"the model uses opset {opset} of the standard operators; {MIN_OPSET} is the first that can slice a cache",
            hint="convert it with onnx.version_converter first",
        )


def _require_capacity(model: Model, max_length: int | str) -> None:
    if isinstance(max_length, str):
        if not max_length.isidentifier():
            raise ConvertError(f"max_length {max_length!r} is neither a number of rows nor a symbol")
        symbols = {
            dim
            for graph in _graphs(model)
            for value in graph.declared()
            if isinstance(value.type, TensorType)
            for dim in value.type.dims or ()
        }
        if max_length in symbols:
            raise ConvertError(f"the symbol {max_length!r} already stands for another dimension of the model")
    elif not 0 < max_length < 2**63:
        raise ConvertError(f"max_length must be at least 1 and fit INT64, got {max_length}")


def _graphs(model: Model) -> Iterator[Graph]:
    """Every graph of the model: main, functions, and their subgraphs."""
    for graph in (model.graph, *model.functions.values()):
        yield from walk(graph)


def _all_names(model: Model) -> set[str]:
    return {
        name
        for graph in _graphs(model)
        for names in (
            (value.name for value in graph.declared()),
            graph.initializers,
            graph.sparse_initializers,
            *((*node.inputs, *node.outputs) for node in graph.nodes),
        )
        for name in names
    }


class _Names:
    """Fresh value names."""

    def __init__(self, used: set[str]) -> None:
        self.used = used

    def fresh(self, base: str) -> str:
        name, number = base, 1
        while name in self.used:
            name, number = f"{base}_{number}", number + 1
        self.used.add(name)
        return name


def _rewrite(
    graph: GraphProto, caches: tuple[GrowingCache, ...], max_length: int | str, position: str, names: _Names
) -> None:
    """The recipe of the module, in place."""
    builder = _Builder(graph, names, position)
    inputs = {value.name: value for value in graph.input}
    outputs = {value.name: value for value in graph.output}
    by_node = {cache.node.index: cache for cache in caches}
    read = set(_read_names(graph.node, skip=by_node))
    read |= {cache.new for cache in caches}

    # Reads of the past come first in node order: an update later in the order never makes them stale (MC-ALIAS-011).
    renamed = {
        cache.past: builder.valid_rows(cache.past, builder.position_vector(), cache.axis, inputs[cache.past])
        for cache in caches
        if cache.past in read
    }
    ends: dict[int | str, str] = {}
    for index, source in enumerate(graph.node):
        node = NodeProto()
        node.CopyFrom(source)
        cache = by_node.get(index)
        _rename(node, renamed)
        if cache is None:
            builder.nodes.append(node)
            continue
        _make_update(node, cache, position)
        builder.nodes.append(node)
        if cache.present in read:
            end = ends.get(cache.length) if cache.length is not None else None
            if end is None:
                end = builder.end(node.input[1], cache.axis)
                if cache.length is not None:
                    ends[cache.length] = end
            renamed[cache.present] = builder.valid_rows(cache.present, end, cache.axis, outputs[cache.present])

    for cache in caches:
        value = inputs[cache.past]
        value.access = ValueInfoProto.READ_WRITE
        capacity = value.type.tensor_type.shape.dim[cache.axis]
        if isinstance(max_length, int):
            capacity.dim_value = max_length
        else:
            capacity.dim_param = max_length
        outputs[cache.present].type.CopyFrom(value.type)
        outputs[cache.present].alias_of = cache.past
    scalar = graph.input.add(name=position)
    scalar.type.tensor_type.elem_type = TensorProto.INT64
    scalar.type.tensor_type.shape.SetInParent()
    scalar.doc_string = "Valid length of every cache before the step: the row at which the update begins."
    builder.finish(stale={name for cache in caches for name in (cache.past, cache.present)})


def _make_update(node: NodeProto, cache: GrowingCache, position: str) -> None:
    """Turn the Concat into a CacheUpdate; its name, documentation and metadata stay."""
    node.op_type = "CacheUpdate"
    node.domain = DOMAIN
    node.ClearField("overload")
    node.ClearField("attribute")
    node.attribute.add(name="axis", type=AttributeProto.INT, i=cache.axis)
    node.input[:] = [cache.past, node.input[1], position]
    node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _read_names(nodes: Iterable[NodeProto], skip: Collection[int] = ()) -> Iterator[str]:
    """Names that nodes read, captures of subgraphs included; nodes whose index is in ``skip`` count not."""
    for index, node in enumerate(nodes):
        if index not in skip:
            yield from node.input
        for body in _subgraphs(node):
            yield from _read_names(body.node)
            yield from (value.name for value in body.output)


def _rename(node: NodeProto, renamed: Mapping[str, str]) -> None:
    """Let the node, and its subgraphs where they do not define the name themselves, read the new names."""
    node.input[:] = [renamed.get(name, name) for name in node.input]
    for body in _subgraphs(node):
        own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        own |= {name for inner in body.node for name in inner.output}
        visible = {name: new for name, new in renamed.items() if name not in own}
        for inner in body.node:
            _rename(inner, visible)
        for value in body.output:
            value.name = visible.get(value.name, value.name)


class _Builder:
    """The new node list of a graph, with the constants and value types that it needs."""

    def __init__(self, graph: GraphProto, names: _Names, position: str) -> None:
        self.graph = graph
        self.nodes: list[NodeProto] = []
        self._names = names
        self._position = position
        self._constants: dict[int, str] = {}
        self._position_vector = ""

    def constant(self, number: int) -> str:
        """An INT64 initializer of shape [1]."""
        if number not in self._constants:
            name = self._names.fresh(f"mutable_cache.{number}")
            self.graph.initializer.add(name=name, data_type=TensorProto.INT64, dims=[1], int64_data=[number])
            self._constants[number] = name
        return self._constants[number]

    def node(self, op_type: str, inputs: list[str], output: str, **integers: int) -> str:
        name = self._names.fresh(output)
        node = NodeProto(op_type=op_type, name=name, input=inputs, output=[name])
        for key, number in integers.items():
            node.attribute.add(name=key, type=AttributeProto.INT, i=number)
        self.nodes.append(node)
        return name

    def position_vector(self) -> str:
        """The position as a tensor of shape [1]."""
        if not self._position_vector:
            self._position_vector = self.node("Reshape", [self._position, self.constant(1)], f"{self._position}.vector")
        return self._position_vector

    def end(self, new: str, axis: int) -> str:
        """Position plus the length of ``new``, as a tensor of shape [1]."""
        shape = self.node("Shape", [new], f"{new}.shape")
        length = self.node("Gather", [shape, self.constant(axis)], f"{new}.length", axis=0)
        return self.node("Add", [self._position, length], f"{new}.end")

    def valid_rows(self, cache: str, end: str, axis: int, declared: ValueInfoProto) -> str:
        """Rows 0 to ``end`` of the cache, declared as the growing value was."""
        rows = self.node("Slice", [cache, self.constant(0), end, self.constant(axis)], f"{cache}.valid")
        value = self.graph.value_info.add()
        value.CopyFrom(declared)
        value.name = rows
        return rows

    def finish(self, stale: Collection[str]) -> None:
        """Install the nodes; types recorded for the ``stale`` names as intermediate values no longer hold."""
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        kept = [value for value in self.graph.value_info if value.name not in stale]
        if len(kept) < len(self.graph.value_info):
            entries = GraphProto(value_info=kept)  # a copy, before the list that owns the entries is emptied
            self.graph.ClearField("value_info")
            self.graph.value_info.extend(entries.value_info)
