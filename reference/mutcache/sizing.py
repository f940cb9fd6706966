"""Sizes: the shape of every value in every graph of a model, once the symbolic dimensions have values.

Stock inference of a whole model loses what a plan needs: it knows nothing inside functions, little behind loops, and
not how long the slice of a cache is that ends at ``position``. Here each node is asked by itself, in the order of
execution, with the types of its operands and with the elements of small integer ones, which are computed on the way.
A body of a function is visited for each kind of call, a loop body until its carried shapes settle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from mutcache.classes import AliasClasses, ModelAliases
from mutcache.constructs import Construct, construct_of, function_key, slots
from mutcache.decode import decode_type
from mutcache.errors import PlanError
from mutcache.folding import Constant, constant_value, evaluate, shape_value, tensor_value
from mutcache.model import FunctionKey, Graph, Model, Node, TensorType, Value, page_type
from mutcache.projection import bind_attributes, call_attributes
from mutcache.proto.onnx_ml import FunctionProto, NodeProto, TensorProto
from mutcache.sized import SizedGraph, Visit, declared_types, require_room
from mutcache.sizes import Size, byte_size, elements, meet, sharpen, stacked, with_sizes
from mutcache.stock_pages import SUBSTITUTES

#: Nodes that are visited at most: functions that call functions make much of a small model.
MAX_VISITED: Final = 1 << 20
#: Constants of more elements are no sizes.
_MAX_ELEMENTS: Final = 1 << 10
_INTEGERS: Final = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
#: Give something else in every run.
_RANDOM: Final = frozenset({"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"})


def size_model(model: Model, aliases: ModelAliases, dims: Mapping[str, int]) -> SizedGraph:
    """The sized main graph of a sound model.

    Args:
        model: the model.
        aliases: its alias classes.
        dims: symbolic dimensions to sizes. An integer input of the main graph with one element may be among them,
            with the value that it has in the run that is planned: sizes may depend on it.

    Raises:
        PlanError: with these sizes a node of the main graph cannot run, or there is too much to visit.
    """
    try:
        return _Sizer(model, aliases, dims).main()
    except RecursionError:
        raise PlanError("functions call each other too deeply to be planned", hint="inline them") from None


def value_inputs(graph: Graph) -> list[str]:
    """The integer inputs of one element: positions, lengths, counts."""
    return [
        value.name
        for value in graph.inputs
        if isinstance(value.type, TensorType)
        and value.type.elem_type in (TensorProto.INT64, TensorProto.INT32)
        and value.type.dims in ((), (1,))
        and not value.is_mutable
    ]


class _Sizer:
    def __init__(self, model: Model, aliases: ModelAliases, dims: Mapping[str, int]) -> None:
        self._model = model
        self._aliases = aliases
        self._dims = dims
        self._visited = 0
        self._calls: dict[tuple[object, ...], SizedGraph] = {}
        self._imports: dict[int, list[onnx.OperatorSetIdProto]] = {}

    def main(self) -> SizedGraph:
        graph = self._model.graph
        frame = Visit(
            SizedGraph(graph, self._aliases.main),
            {},
            {},
            {},
            declared_types(graph),
            None,
            self._model.opsets,
            self._dims,
            True,
        )
        values = set(value_inputs(graph))
        for value in graph.inputs:
            given = self._dims.get(value.name) if value.name in values else None
            known = cast("TensorType | None", value.type) if isinstance(value.type, TensorType) else None
            constant = None
            if given is not None and known is not None:
                dtype = helper.tensor_dtype_to_np_dtype(known.elem_type)
                constant = np.full(cast("tuple[int, ...]", known.dims), given, dtype)
            frame.define(value.name, with_sizes(known, self._dims), constant)
            self._container(frame, value)
        for root, members in self._aliases.main.members.items():
            for member in members:  # what one name of a class declares holds for the storage
                if root in frame.types and member in frame.declared:
                    frame.define(root, sharpen(frame.types[root], with_sizes(frame.declared[member], self._dims)))
        self._visit(frame)
        return frame.sized

    def _container(self, frame: Visit, value: Value) -> None:
        """Enter what the pages of an input are; what one name of a class declares holds for the container."""
        element = page_type(value.type)
        if element is None:
            return
        page = TensorType(element.elem_type, element.dims)
        declared = {one.name: page_type(one.type) for one in frame.sized.graph.declared()}
        known = with_sizes(page, self._dims)
        for member in self._aliases.main.members.get(value.name, ()):
            other = declared.get(member)
            if other is not None:
                known = sharpen(known, with_sizes(TensorType(other.elem_type, other.dims), self._dims))
        frame.define_pages(value.name, known)
        symbols = tuple(dim for dim in element.dims or () if isinstance(dim, str) and dim not in self._dims)
        if symbols and byte_size(known) is None:
            frame.sized.lacking[value.name] = symbols

    def _visit(self, frame: Visit) -> None:
        graph = frame.sized.graph
        inputs = {value.name for value in graph.inputs}
        for name, tensor in graph.initializers.items():
            is_default = name in inputs  # the caller may pass something else
            if not is_default or frame.types.get(name) is None:
                known = TensorType(tensor.data_type, tuple(tensor.dims))
                frame.define(name, known, None if is_default else tensor_value(tensor))
        for name, sparse in graph.sparse_initializers.items():
            frame.define(name, TensorType(sparse.values.data_type, tuple(sparse.dims)))
        self._visited += len(graph.nodes)
        if self._visited > MAX_VISITED:
            raise PlanError(
                f"the bodies of functions and loops have more than {MAX_VISITED} nodes together", hint="plan a part"
            )
        for node in graph.nodes:
            self._node(frame, node)

    def _node(self, frame: Visit, node: Node) -> None:
        proto = _bound(frame, node.proto)
        kind = construct_of(node)
        known: Sequence[TensorType | None] = ()
        constant: Constant | None = None
        if not node.is_cache_update and function_key(node) in self._model.functions:
            known = self._call(frame, node, proto)
        elif kind is Construct.BRANCH:
            known = self._branch(frame, node)
        elif kind is Construct.LOOP:
            known = self._loop(frame, node)
        elif kind is Construct.SCAN:
            known = self._scan(frame, node, proto)
        elif kind is None:
            known = self._infer(frame, node, proto)
            if node.is_cache_update and frame.is_certain:
                require_room(frame, node, proto)
            if node.is_paged_update:
                wanted = frame.constants.get("".join(node.inputs[4:]))
                frame.sized.page_types[node.index] = None if wanted is None else int(wanted.reshape(-1)[0])
            if node.is_standard and node.op_type == "Constant":
                frame.sized.constants.update(node.outputs)
                constant = constant_value(proto)
            elif node.is_standard and len(node.outputs) == 1 and known:
                constant = _fold(frame, node, proto, known[0])
        for position, name in enumerate(node.outputs):
            frame.define(name, known[position] if position < len(known) else None, None if position else constant)
            self._output_pages(frame, node, name)

    def _output_pages(self, frame: Visit, node: Node, name: str) -> None:
        """Enter what the pages of an output are: those of what it aliases, or is the value of."""
        link = frame.sized.scope.links.get(name)
        source = link.source if link is not None else ""
        if not source and node.is_standard and node.op_type == "Identity":
            source = node.inputs[0]
        frame.define_pages(name, frame.pages.get(source))

    def _infer(self, frame: Visit, node: Node, proto: NodeProto) -> list[TensorType | None]:
        """What the operator's schema says."""
        if node.is_standard and node.op_type in SUBSTITUTES and node.inputs[0] in frame.pages:
            return [None if node.op_type == "Identity" else TensorType(TensorProto.INT64, ())]
        domain = "" if node.is_standard else node.domain
        version = frame.opsets.get(node.domain, frame.opsets.get(domain, frame.opsets.get("ai.onnx", 1)))
        stock = onnx.NodeProto.FromString(proto.SerializeToString())
        stock.domain = domain
        data = {name: numpy_helper.from_array(frame.constants[name]) for name in node.inputs if name in frame.constants}
        try:
            schema = defs.get_schema(node.op_type, version, domain)
            found = shape_inference.infer_node_outputs(
                schema,
                stock,
                {
                    name: _type_proto(frame.types.get(name))
                    if name not in frame.pages
                    else helper.make_sequence_type_proto(_type_proto(frame.pages[name]))
                    for name in node.inputs
                    if name
                },
                data,
                opset_imports=self._imported(frame.opsets),
            )
        except defs.SchemaError:
            return []
        except Exception as error:  # stock onnx raises whatever its C++ code throws
            if not frame.is_certain:
                return []
            reason = " ".join(str(error).split())
            raise PlanError(
                f"{node.label} of {frame.sized.graph.path} cannot run with these sizes: {reason}",
                hint="give dimensions that fit together",
                node=node.label,
            ) from error
        types = (found.get(name) for name in node.outputs)
        return [_tensor(decode_type(cast("Any", known))) if known is not None else None for known in types]

    def _imported(self, opsets: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
        if id(opsets) not in self._imports:
            self._imports[id(opsets)] = [
                helper.make_opsetid("" if domain == "ai.onnx" else domain, version)
                for domain, version in opsets.items()
            ]
        return self._imports[id(opsets)]

    def _body(
        self,
        frame: Visit,
        node: Node,
        attribute: str,
        formals: Sequence[TensorType | None] = (),
    ) -> SizedGraph:
        """Visit a subgraph of ``node`` with these formal inputs."""
        graph = node.subgraphs[attribute]
        outer = frame.sized.scope
        scope = outer.inner.get(node.index, {}).get(attribute) or AliasClasses(graph, outer, node.index)
        inner = frame.inside(graph, scope)
        for value, known in zip(graph.inputs, formals, strict=False):
            inner.define(value.name, known)
        for slot in slots(node, graph):
            inner.define_pages(graph.inputs[slot.formal].name, frame.pages.get(node.inputs[slot.initial]))
        self._visit(inner)
        frame.sized.bodies.setdefault(node.index, {})[attribute] = inner.sized
        return inner.sized

    def _branch(self, frame: Visit, node: Node) -> list[TensorType | None]:
        condition = frame.constants.get(node.inputs[0])
        taken = "" if condition is None or condition.size != 1 else "then_branch" if condition.any() else "else_branch"
        bodies = [self._body(frame, node, name) for name in node.subgraphs if taken in ("", name)]
        first, *others = [_results(body, frame) for body in bodies]
        for other in others:
            first = [meet(one, two) for one, two in zip(first, other, strict=False)]
        return first

    def _loop(self, frame: Visit, node: Node) -> list[TensorType | None]:
        ((attribute, graph),) = node.subgraphs.items()
        trips = frame.constants.get(node.inputs[0]) if any(node.inputs[:1]) else None
        count = int(trips.reshape(-1)[0]) if trips is not None and trips.size == 1 else None
        if count is not None and count < 0:
            count = 0
        frame.sized.trips[node.index] = count
        first = [TensorType(TensorProto.INT64, ()), TensorType(TensorProto.BOOL, ())]
        carried = [frame.types.get(node.inputs[slot.initial]) for slot in slots(node, graph)]
        carried, results = self._settle(frame, node, attribute, carried, first, (), 1)
        return carried + [stacked(known, count, 0) for known in results[len(carried) :]]

    def _scan(self, frame: Visit, node: Node, proto: NodeProto) -> list[TensorType | None]:
        ((attribute, graph),) = node.subgraphs.items()
        given = {each.name: list(each.ints) for each in proto.attribute}
        carried = [frame.types.get(node.inputs[slot.initial]) for slot in slots(node, graph)]
        if len(node.inputs) != len(graph.inputs):
            return []  # operator set 8
        count: Size = None
        slices: list[TensorType | None] = []
        axes = given.get("scan_input_axes", [])
        for position, name in enumerate(node.inputs[len(carried) :]):
            known = frame.types.get(name)
            axis = axes[position] if position < len(axes) else 0
            if known is None or known.dims is None or not -len(known.dims) <= axis < len(known.dims):
                slices.append(None)
                continue
            sizes = list(known.dims)
            length = sizes.pop(axis)
            count = length if isinstance(length, int) else count
            slices.append(TensorType(known.elem_type, tuple(sizes)))
        frame.sized.trips[node.index] = count
        carried, results = self._settle(frame, node, attribute, carried, (), slices, 0)
        axes = given.get("scan_output_axes", [])
        axes += [0] * (len(results) - len(carried) - len(axes))
        collected = zip(results[len(carried) :], axes, strict=False)
        return carried + [stacked(known, count, axis) for known, axis in collected]

    def _settle(
        self,
        frame: Visit,
        node: Node,
        attribute: str,
        carried: list[TensorType | None],
        before: Sequence[TensorType | None],
        behind: Sequence[TensorType | None],
        skipped: int,
    ) -> tuple[list[TensorType | None], list[TensorType | None]]:
        """Visit a loop body until the shapes that it carries hold for every iteration; sizes that change are unknown.

        Returns:
            What it carries, and all its outputs but the first ``skipped``.
        """
        while True:
            body = self._body(frame, node, attribute, [*before, *carried, *behind])
            results = _results(body, frame)[skipped:]
            widened = [meet(one, two) for one, two in zip(carried, results, strict=False)]
            if widened == carried:
                return carried, results
            carried = widened

    def _call(self, frame: Visit, node: Node, proto: NodeProto) -> list[TensorType | None]:
        key: FunctionKey = function_key(node)
        graph = self._model.functions[key]
        attributes = call_attributes(cast("FunctionProto", graph.proto), proto)
        arguments = [
            (value.name, frame.types.get(name), frame.constants.get(name))
            for value, name in zip(graph.inputs, node.inputs, strict=False)
            if name
        ]
        containers = {
            value.name: frame.pages[name]
            for value, name in zip(graph.inputs, node.inputs, strict=False)
            if name in frame.pages
        }
        known = (
            key,
            frame.is_certain,
            tuple(sorted((name, each.SerializeToString()) for name, each in attributes.items())),
            tuple(
                (name, kind, None if value is None else (value.dtype.str, value.shape, value.tobytes()))
                for name, kind, value in arguments
            ),
            tuple(containers.items()),
        )
        sized = self._calls.get(known)
        if sized is None:
            opsets = {opset.domain: opset.version for opset in cast("FunctionProto", graph.proto).opset_import}
            scope = self._aliases.functions.get(key) or AliasClasses(graph)
            # Symbols inside a function belong to each call: the dimensions of the model say nothing of them.
            inner = Visit(
                SizedGraph(graph, scope), {}, {}, {}, declared_types(graph), attributes, opsets, {}, frame.is_certain
            )
            for name, kind, value in arguments:
                inner.define(name, kind, value)
            for name, page in containers.items():
                inner.define_pages(name, page)
            self._visit(inner)
            sized = self._calls[known] = inner.sized
        frame.sized.bodies.setdefault(node.index, {})[""] = sized
        return [sized.types.get(value.name) for value in graph.outputs]


def _bound(frame: Visit, proto: NodeProto) -> NodeProto:
    """The node with the values of the attributes that it takes from its function."""
    if frame.attributes is None or not any(attribute.ref_attr_name for attribute in proto.attribute):
        return proto
    bound = NodeProto()
    bound.CopyFrom(proto)
    bind_attributes(bound, frame.attributes)
    return bound


def _results(body: SizedGraph, frame: Visit) -> list[TensorType | None]:
    """The types of the outputs of a subgraph of ``frame``."""
    return [body.types.get(value.name, frame.types.get(value.name)) for value in body.graph.outputs]


def _fold(frame: Visit, node: Node, proto: NodeProto, known: TensorType | None) -> Constant | None:
    """The elements of the one output of a node, if they are few integers and known."""
    if node.op_type in ("Shape", "Size"):
        return shape_value(frame.types.get(node.inputs[0]), proto)
    count = None if known is None or known.elem_type not in _INTEGERS else elements(known)
    if count is None or count > _MAX_ELEMENTS or node.op_type in _RANDOM or not any(node.inputs):
        return None
    if any(name and name not in frame.constants for name in node.inputs):
        return None
    return evaluate(proto, [frame.constants[name] if name else None for name in node.inputs], frame.opsets)


def _tensor(known: object) -> TensorType | None:
    """A tensor type without symbols: stock inference invents some for what it does not know."""
    return with_sizes(known, {}) if isinstance(known, TensorType) else None


def _type_proto(known: TensorType | None) -> onnx.TypeProto:
    if known is None or not known.elem_type:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(known.elem_type, None if known.dims is None else list(known.dims))
