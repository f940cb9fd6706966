"""``infer_shapes``: the same model with the types of its values written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mutcache.alias import alias_classes
from mutcache.constructs import function_key
from mutcache.decode import decode, decode_type
from mutcache.facts import sharpen, sym_tensor
from mutcache.frames import Frame
from mutcache.model import Graph, Model, ValueType
from mutcache.projection import (
    Additions,
    bind_attributes,
    call_attributes,
    entries_of,
    project_body,
    set_sizes,
    set_type,
)
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto
from mutcache.shapes import ShapesContext
from mutcache.stock import StockTypes, infer_types

#: IR version that brought the value_info of functions.
_FUNCTION_TYPES: Final = 10


def infer_shapes(model: ModelProto) -> ModelProto:
    """A copy in which inputs, outputs and value_info say all that is known of types and shapes.

    Beyond ``onnx.shape_inference`` every name of an alias class has what is known of the class; subgraphs and, from IR
    version 10 on, bodies of functions have value_info too. Of a function only that is written in which all calls
    agree, and a function that nobody calls stays as it is. Annotations and everything else are kept, no declared type
    is made weaker, and a second call changes nothing.

    A model that contradicts itself comes back as it is: `check_model` says what is wrong.

    Raises:
        DecodeError: the model has what protobuf cannot store.
    """
    result = ModelProto()
    result.CopyFrom(model)
    decoded = decode(result)
    shapes = ShapesContext(decoded, alias_classes(decoded))
    if not (shapes.conflicts or shapes.structure_error or shapes.inference_error or shapes.merged_error):
        typings = _Typings(decoded, shapes)
        # All is read before anything is written: what was decoded looks into the messages.
        found = [(graph, each, _types(each)) for graph, each in typings.of.items()]
        for graph, each, types in found:
            _write(graph, types, _agreed(each))
    return result


class _Typing:
    """The types of one graph on behalf of one caller.

    Attributes:
        is_function: whether the graph is in the body of a function.
        sizes: the symbols of the graph that have a size.
    """

    def __init__(self, shapes: ShapesContext, stock: StockTypes, frame: Frame | None, is_function: bool) -> None:
        self._shapes = shapes
        self._stock = stock
        self._frame = frame
        self.is_function = is_function
        self.sizes = {} if frame is None else shapes.sizes(frame)

    def names(self) -> Iterable[str]:
        """The values with a type; an alias class may know that of a value of which stock inference knows nothing."""
        names = dict.fromkeys(self._stock.names())
        if self._frame is not None:
            names.update(dict.fromkeys(name for name in self._frame.scope.links))
        return names

    def get(self, name: str) -> ValueType | None:
        """The type of one value."""
        if self._frame is not None and name in self._frame.scope.root_of:
            return self._shapes.type_of(name, self._frame)
        return self._stock.get(name)


class _Typings:
    """The types of every graph that a run may enter, once for each way to enter it.

    Attributes:
        of: graph to typings.
    """

    def __init__(self, model: Model, shapes: ShapesContext) -> None:
        self.of: dict[Graph, list[_Typing]] = {}
        self._model = model
        self._shapes = shapes
        self._frames = {
            (frame.outer, frame.node.index, frame.attribute): frame for frame in shapes.frames if frame.node is not None
        }
        self._seen: set[tuple[Graph, bytes]] = set()
        main = shapes.frames[0]
        self._pending: list[tuple[Graph, StockTypes, Frame | None, Mapping[str, AttributeProto] | None]] = [
            (model.graph, shapes.stock(main), main, None)
        ]
        while self._pending:
            self._enter(*self._pending.pop())

    def _enter(
        self, graph: Graph, stock: StockTypes, frame: Frame | None, attributes: Mapping[str, AttributeProto] | None
    ) -> None:
        typing = _Typing(self._shapes, stock, frame, attributes is not None)
        self.of.setdefault(graph, []).append(typing)
        for index in graph.nested:
            for name, body in graph.nodes[index].subgraphs.items():
                inner = self._frames.get((frame, index, name)) if frame is not None else None
                self._pending.append((body, stock.inside(index, name), inner, attributes))
        if not self._model.functions or self._shapes.unjudged or self._model.ir_version < _FUNCTION_TYPES:
            return
        names = {name for _, name, _ in self._model.functions}
        for index, proto in enumerate(graph.node_protos):
            if proto.op_type in names and function_key(graph.nodes[index]) in self._model.functions:
                self._call(graph, index, typing, frame, attributes)

    def _call(
        self,
        graph: Graph,
        index: int,
        typing: _Typing,
        frame: Frame | None,
        attributes: Mapping[str, AttributeProto] | None,
    ) -> None:
        node = graph.nodes[index]
        key = function_key(node)
        body = self._model.functions[key]
        inner = self._frames.get((frame, index, "")) if frame is not None else None
        call = NodeProto()
        call.CopyFrom(node.proto)
        bind_attributes(call, attributes or {})
        given = call_attributes(body.proto, call)
        if inner is not None:
            self._pending.append((body, self._shapes.stock(inner), inner, given))
            return
        types = {
            formal.name: _without_symbols(value_type)
            for formal, name in zip(body.inputs, node.inputs, strict=False)
            if name and (value_type := typing.get(name)) is not None
        }
        data = serialize(project_body(self._model, key, given, {body: Additions(types=types)}))
        if (body, data) not in self._seen:
            self._seen.add((body, data))
            self._pending.append((body, infer_types(data), None, given))


def _types(typings: Sequence[_Typing]) -> dict[str, ValueType]:
    """What all typings agree on."""
    found: dict[str, ValueType] = {}
    for name in typings[0].names():
        known = typings[0].get(name)
        for typing in typings[1:]:
            known = _meet(known, typing.get(name))
        if known is not None:
            # Symbols of callers mean nothing in the body of a function.
            found[name] = _without_symbols(known) if typings[0].is_function else known
    return found


def _meet(one: ValueType | None, other: ValueType | None) -> ValueType | None:
    """What both types say."""
    if one is None or other is None:
        return None
    ours, theirs = sym_tensor(one, 0), sym_tensor(other, 0)
    if (ours.kind, ours.elem_type) != (theirs.kind, theirs.elem_type):
        return None
    dims = None
    if ours.dims is not None and theirs.dims is not None and len(ours.dims) == len(theirs.dims):
        dims = tuple(size if size == twin else None for size, twin in zip(ours.dims, theirs.dims, strict=True))
    return replace(ours, dims=dims).value_type


def _without_symbols(value_type: ValueType) -> ValueType:
    known = sym_tensor(value_type, 0)
    dims = None if known.dims is None else tuple(dim if isinstance(dim, int) else None for dim in known.dims)
    return replace(known, dims=dims).value_type


def _agreed(typings: Sequence[_Typing]) -> dict[str, int]:
    """The symbols that have one size for all."""
    first, *others = typings
    return {
        symbol: size for symbol, size in first.sizes.items() if all(other.sizes.get(symbol) == size for other in others)
    }


def _write(graph: Graph, types: Mapping[str, ValueType], sizes: Mapping[str, int]) -> None:
    missing = dict(types)
    for entry in entries_of(graph.proto):
        declared = decode_type(entry.type) if entry.HasField("type") else None
        known = types.get(entry.name)
        missing.pop(entry.name, None)
        if known is not None:
            if declared is not None:
                known = sharpen(sym_tensor(declared, 0), sym_tensor(known, 0)).value_type
            set_type(entry.type, known)
        if declared is not None:
            set_sizes(entry.type, sizes)
    for name, known in missing.items():
        is_known = bool(sym_tensor(known, 0).elem_type)
        if is_known and name not in graph.initializers and name not in graph.sparse_initializers:
            set_type(graph.proto.value_info.add(name=name).type, known)
