"""``lower`` and ``strip``: a model with mutable caches for tools and runtimes that know nothing of them.

A lowered model computes the same values without any promise about storage. Whoever runs it can still have the caches
updated in place, as ONNX Runtime GenAI does: by binding one buffer to an input and to the output that
:func:`storage_of_outputs` names for it. Whether the runtime then really works in place, nothing in the model says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import onnx
from onnx import checker, version_converter

from mutcache.alias import alias_classes
from mutcache.decode import decode
from mutcache.errors import MutcacheError
from mutcache.model import DOMAIN, STANDARD_DOMAINS, TensorType
from mutcache.proto import BASE_IR_VERSION, from_onnx, to_onnx
from mutcache.proto.onnx_ml import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from mutcache.renaming import FreshNames, nested_graphs, value_names, walk_nodes
from mutcache.schemas import CIRCULAR, UpdateAttributes, update_attributes
from mutcache.shapes import ShapesContext

#: The standard operator set that brought TensorScatter, and the IR version of the first runtimes that know it.
LOWERED_OPSET: Final = 24
LOWERED_IR_VERSION: Final = 11

_LOWERED: Final = frozenset({"TensorScatter", "ScatterND"})

_Owner = ModelProto | FunctionProto
_Body = GraphProto | FunctionProto


def strip(model: ModelProto) -> ModelProto:
    """A copy without annotations, in all graphs and functions: no ``access``, ``alias_of`` and ``output_alias``.

    The operators stay, those of this domain included, and so does all else; the IR version is one that stock ONNX
    reads. What a ``CacheUpdate`` then does to its cache is for the runtime to say.

    Raises:
        DecodeError: the model nests deeper than protobuf reads (it was built in memory).
        MutcacheError: the model has quantized pages, which are no annotations.
    """
    if model.quantizations or any(_is_quantized(entry.type) for body in _bodies(model) for entry in _entries(body)):
        raise MutcacheError(
            "the model has quantized pages: they are types of values, and stock ONNX has nothing in their place",
            hint="only a runtime that knows them can run the model",
        )
    result = ModelProto()
    result.CopyFrom(model)
    result.ir_version = min(result.ir_version, BASE_IR_VERSION)
    for body in _bodies(result):
        for entry in _entries(body):
            entry.ClearField("access")
            entry.ClearField("alias_of")
        for node in body.node:
            node.ClearField("output_alias")
    return result


def lower(model: ModelProto) -> ModelProto:
    """A copy without the delta, in which standard operators stand for every ``CacheUpdate``, wherever it is.

    An update along axis 0 becomes a ``ScatterND`` of whole rows, along any other axis a ``TensorScatter``, for which a
    position for all rows of the batch is expanded to one for each. What an update returned in place, the lowered model
    returns as another value: the same bytes. Of an invalid position the operator makes what it will: ``ScatterND``
    counts negative positions from the end. The result has IR version 11, and a model that updates caches is converted
    to version 24 of the standard operators if it imports an earlier one. The model is not checked.

    Raises:
        DecodeError: the model has what protobuf cannot store.
        MutcacheError: the model has quantized pages, which stock ONNX has no operators for, or cannot be converted to
            operator set 24; or an update, which is named, has no lowering: ``TensorScatter`` takes axis 0 for the
            batch, so ``batch_axis`` must be 0 or absent.
    """
    decode(model)
    result = strip(model)
    result.ir_version = LOWERED_IR_VERSION
    for owner in result.functions:
        if _is_too_old(owner, owner):
            raise MutcacheError(
                f"function {owner.domain}::{owner.name} imports standard operators from before TensorScatter, which "
                f"came with version {LOWERED_OPSET}",
                hint="inline it first: mutcache.inline(model)",
            )
    if _is_too_old(result, result.graph):
        result = _convert(result)
    ranks = _Ranks(model)
    bodies = list(zip(_bodies(model), _bodies(result), strict=True))
    fresh = FreshNames(name for body in _bodies(result) for name in value_names(body))
    for original, body in reversed(bodies):  # inner ones first: to replace the nodes of a graph copies what they hold
        if any(node.domain == DOMAIN for node in body.node):
            nodes = [lowered for node in body.node for lowered in _lower_node(node, original, ranks, fresh)]
            del body.node[:]
            body.node.extend(nodes)
    _settle_imports(result, result.graph)
    for owner in result.functions:
        _settle_imports(owner, owner)
    return result


def storage_of_outputs(model: ModelProto) -> dict[str, str]:
    """Each output of the graph that is the storage of a mutable input, to the name of that input.

    For callers of the lowered model, which does not say it any more: an output and its input are one buffer.
    """
    classes = alias_classes(model).main
    mutable = set(classes.mutable_roots())
    roots = ((entry.name, classes.root_of.get(entry.name, "")) for entry in model.graph.output)
    return {name: root for name, root in roots if root in mutable}


class _Ranks:
    """The ranks of caches: those declared where the update stands or, when one is not, what can be inferred."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model

    def of(self, name: str, body: _Body) -> frozenset[int]:
        """Every rank that the value may have: one for each call of a function; none if nothing is known."""
        declared = [entry.type.tensor_type for entry in _entries(body) if entry.name == name]
        known = frozenset(len(tensor.shape.dim) for tensor in declared if tensor.HasField("shape"))
        if known:
            return known
        frames = [frame for frame in self._shapes.frames if frame.scope.graph.proto is body]
        types = [self._shapes.type_of(name, frame) for frame in frames]
        dims = [kind.dims if isinstance(kind, TensorType) else None for kind in types]
        return frozenset() if None in dims else frozenset(len(one) for one in dims if one is not None)

    @cached_property
    def _shapes(self) -> ShapesContext:
        decoded = decode(self._model)
        return ShapesContext(decoded, alias_classes(decoded))


def _lower_node(node: NodeProto, body: _Body, ranks: _Ranks, fresh: FreshNames) -> Iterator[NodeProto]:
    """What stands for a node. ``body`` is where it stands in the model as it was."""
    if node.domain != DOMAIN:
        yield node
        return
    label = f"{node.op_type} {node.name or ', '.join(node.output)!r}"
    if node.op_type != "CacheUpdate":
        raise MutcacheError(f"{label}: stock ONNX has no such operator")
    if len(node.input) != 3 or len(node.output) != 1 or any(attribute.ref_attr_name for attribute in node.attribute):
        raise MutcacheError(
            f"{label}: it has not three inputs, one output and attributes with values",
            hint="see what `mutcache check` says; an attribute that refers to the function's goes by mutcache.inline",
        )
    cache, values, position = node.input
    attributes = update_attributes(node)
    axis, batch_axis = attributes.axis, attributes.batch_axis
    if axis < 0 or (batch_axis is not None and batch_axis < 0):
        found = ranks.of(cache, body)
        if len(found) != 1:
            known = f"it may be {' or '.join(map(str, sorted(found)))}" if found else "its rank is not known"
            raise MutcacheError(
                f"{label}: axis is {axis} of {cache!r}, and {known}",
                hint="declare its shape, or inline the function: mutcache.inline(model)",
            )
        (rank,) = found
        axis += rank if axis < 0 else 0
        batch_axis = batch_axis + rank if batch_axis is not None and batch_axis < 0 else batch_axis
    if batch_axis not in (None, 0):
        raise MutcacheError(f"{label}: batch_axis is {batch_axis}, TensorScatter's batch is axis 0")
    if axis == batch_axis:
        raise MutcacheError(f"{label}: axis and batch_axis are both {axis}")
    output = node.output[0]
    if axis == 0:
        made = [*_rows(cache, values, position, output, fresh, is_circular=attributes.mode == CIRCULAR)]
    else:
        made = [*_scatter(cache, values, position, output, fresh, axis, attributes)]
    made[-1].name = node.name
    made[-1].doc_string = node.doc_string
    made[-1].metadata_props.extend(node.metadata_props)
    yield from made


def _scatter(
    cache: str, values: str, position: str, output: str, fresh: FreshNames, axis: int, attributes: UpdateAttributes
) -> Iterator[NodeProto]:
    """A TensorScatter, with a position for each row of the batch."""
    if attributes.batch_axis is None:
        batch, positions = fresh(f"{output}_batch"), fresh(f"{output}_positions")
        yield _node("Shape", [cache], batch, start=0, end=1)
        yield _node("Expand", [position, batch], positions)
        position = positions
    scatter = _node("TensorScatter", [cache, values, position], output, axis=axis)
    scatter.attribute.add(name="mode", s=attributes.mode.encode(), type="STRING")
    yield scatter


def _rows(
    cache: str, values: str, position: str, output: str, fresh: FreshNames, *, is_circular: bool
) -> Iterator[NodeProto]:
    """A ScatterND of whole rows, for a cache without a batch axis."""
    named = {what: fresh(f"{output}_{what}") for what in ("zero", "one", "axes", "shape", "length", "offsets", "rows")}
    for what, value in (("zero", {"value_int": 0}), ("one", {"value_int": 1})):
        yield _node("Constant", [], named[what], **value)
    axes = _node("Constant", [], named["axes"])
    axes.attribute.add(name="value_ints", ints=[1], type="INTS")
    yield axes
    yield _node("Shape", [values], named["shape"], start=0, end=1)
    yield _node("Squeeze", [named["shape"]], named["length"])
    yield _node("Range", [named["zero"], named["length"], named["one"]], named["offsets"])
    yield _node("Add", [position, named["offsets"]], named["rows"])
    rows = named["rows"]
    if is_circular:
        capacity, wrapped = fresh(f"{output}_capacity"), fresh(f"{output}_wrapped")
        yield _node("Shape", [cache], capacity, start=0, end=1)
        yield _node("Mod", [rows, capacity], wrapped)
        rows = wrapped
    indices = fresh(f"{output}_indices")
    yield _node("Unsqueeze", [rows, named["axes"]], indices)
    yield _node("ScatterND", [cache, indices, values], output)


def _node(op_type: str, inputs: list[str], output: str, **integers: int) -> NodeProto:
    node = NodeProto(op_type=op_type, input=inputs, output=[output])
    for name, value in integers.items():
        node.attribute.add(name=name, i=value, type="INT")
    return node


def _standard_version(owner: _Owner) -> int | None:
    return next((opset.version for opset in owner.opset_import if opset.domain in STANDARD_DOMAINS), None)


def _is_too_old(owner: _Owner, body: _Body) -> bool:
    """Whether it updates caches, and imports standard operators that have no TensorScatter."""
    version = _standard_version(owner)
    updates = any(node.domain == DOMAIN for node in walk_nodes(body.node))
    return updates and version is not None and version < LOWERED_OPSET


def _settle_imports(owner: _Owner, body: _Body) -> None:
    """Import what the nodes need now, and this domain no more."""
    kept = [opset for opset in owner.opset_import if opset.domain != DOMAIN]
    del owner.opset_import[:]
    owner.opset_import.extend(kept)
    if _standard_version(owner) is None and any(node.op_type in _LOWERED for node in walk_nodes(body.node)):
        owner.opset_import.add(domain="", version=LOWERED_OPSET)


def _convert(model: ModelProto) -> ModelProto:
    """The model with the standard operators of the version that has TensorScatter."""
    problem = f"the model cannot be converted to version {LOWERED_OPSET} of the standard operators"
    if model.functions:
        raise MutcacheError(f"{problem}: it has functions", hint="inline them first: mutcache.inline(model)")
    try:
        converted = version_converter.convert_version(to_onnx(model), LOWERED_OPSET)
        converted.ir_version = LOWERED_IR_VERSION
        if all(tensor.data_location != TensorProto.EXTERNAL for tensor in model.graph.initializer):
            checker.check_model(converted)  # the converter passes on what it does not understand
    except (RuntimeError, ValueError, onnx.checker.ValidationError, version_converter.ConvertError) as error:
        raise MutcacheError(f"{problem}: {error}", hint="export it with that version") from error
    return from_onnx(converted)


def _bodies(model: ModelProto) -> Iterator[_Body]:
    """Every graph and function of a model, each before those that it holds."""
    bodies: tuple[_Body, ...] = (model.graph, *model.functions)
    for body in bodies:
        yield body
        yield from nested_graphs(body.node)


def _entries(body: _Body) -> Iterable[ValueInfoProto]:
    return body.value_info if isinstance(body, FunctionProto) else (*body.input, *body.output, *body.value_info)


def _is_quantized(proto: TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    while kind in ("sequence_type", "map_type", "optional_type"):
        proto = proto.map_type.value_type if kind == "map_type" else getattr(proto, kind).elem_type
        kind = proto.WhichOneof("value")
    return kind == "quantized_tensor_type"
