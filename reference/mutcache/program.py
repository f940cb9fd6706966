"""A plan with its kernels: what all bindings of a session execute."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from onnx import numpy_helper

from mutcache.errors import BindError, PlanError
from mutcache.feeds import read_only
from mutcache.model import FunctionKey, Graph, Node
from mutcache.ops import paged
from mutcache.ops.standard import Kernel, StandardKernels
from mutcache.page_memory import HOST_PAGES, PageMemory
from mutcache.paging import PageTable
from mutcache.plan import ExecutionPlan, GraphPlan, Step
from mutcache.projection import bind_attributes, call_attributes, held_graphs, nodes_within
from mutcache.proto.onnx_ml import AttributeProto, FunctionProto, NodeProto
from mutcache.scopes import free_names
from mutcache.storage import Array, dtype_of, is_device_array, pin, show_dims, to_host


class Program:
    """The kernels and constants of a plan.

    Args:
        plan: the plan.
        initializers: arrays to use in place of the initializers of these names, on the host or a device.
        pages: the memory of the pages that runs write.

    Attributes:
        plan: the plan.
        main: the routine of the main graph.

    Raises:
        PlanError: a node has no kernel, or an initializer cannot be read.
        BindError: ``initializers`` are not what the model declares.
    """

    def __init__(self, plan: ExecutionPlan, initializers: Mapping[str, Array], pages: PageMemory = HOST_PAGES) -> None:
        self.plan = plan
        self.main = _Loader(plan, pages).graph(plan.main, _Context(plan.model.opsets, None), initializers)
        self._pins = [pin(array) for array in initializers.values()]

    @property
    def constants(self) -> Mapping[str, Any]:
        """Initializers and results of Constant nodes of the main graph by name; the arrays are read-only."""
        return self.main.constants


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """A planned graph with its kernels.

    Attributes:
        plan: the plan of the graph.
        captured: the names that the graph takes from those around it.
        constants: initializers and results of Constant nodes by name; the arrays are read-only.
        kernels: those of the nodes that run no graphs of the model, by node index. Constants need none any more.
        protos: the messages of all other nodes, with the attributes that the call gives, by node index.
        bodies: by node index the routines of an If, Loop or Scan, by attribute; that of a function under ``""``.
    """

    plan: GraphPlan
    captured: tuple[str, ...]
    constants: Mapping[str, Any]
    kernels: Mapping[int, Kernel]
    protos: Mapping[int, NodeProto]
    bodies: Mapping[int, Mapping[str, Routine]]


@dataclass(frozen=True, slots=True, eq=False)
class _Context:
    """What the nodes of a graph mean.

    Attributes:
        opsets: versions of the operator sets, by domain.
        attributes: what attributes may refer to in the body of a function, None elsewhere.
    """

    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto] | None

    def bind(self, node: Node) -> NodeProto:
        """The message of ``node``, its references to attributes replaced by what they refer to."""
        proto, given = node.proto, self.attributes
        if given is None or not any(
            attribute.ref_attr_name for one in nodes_within([proto]) for attribute in one.attribute
        ):
            return proto
        bound = NodeProto()
        bound.CopyFrom(proto)
        for one in nodes_within([bound]):
            bind_attributes(one, given)
        return bound


class _Loader:
    """Loads the routines of one model, of a function once for all calls that give it the same attributes."""

    def __init__(self, plan: ExecutionPlan, pages: PageMemory) -> None:
        self._plan = plan
        self._pages = pages
        self._kernels = StandardKernels(plan.model)
        self._functions: dict[tuple[FunctionKey, tuple[bytes, ...]], Routine] = {}

    def graph(self, plan: GraphPlan, context: _Context, initializers: Mapping[str, Array] | None = None) -> Routine:
        """The routine of a graph; ``initializers`` are those that a caller supplies."""
        constants: dict[str, Any] = dict(_load_initializers(plan.graph, initializers or {}))
        kernels: dict[int, Kernel] = {}
        protos: dict[int, NodeProto] = {}
        bodies: dict[int, Mapping[str, Routine]] = {}
        for step in plan.steps:
            node, proto = step.node, context.bind(step.node)
            if proto is not node.proto:
                _require_own_graphs(node, proto)
            if step.bodies or step.function is not None:
                protos[node.index] = proto
                bodies[node.index] = self._bodies(step, proto, context)
            elif step.aliases:
                protos[node.index] = proto
            elif node.is_standard and node.op_type == "Constant":
                (constants[node.outputs[0]],) = self._kernels.load(node, proto, context.opsets)(constants)
            elif node.is_gather:
                kernels[node.index] = paged.gather(node, proto, self._pages)
            elif node.is_standard and node.op_type == "SequenceLength":
                kernels[node.index] = paged.sequence_length(node)
            else:
                kernel = self._kernels.load(node, proto, context.opsets)
                is_identity = node.is_standard and node.op_type == "Identity"
                kernels[node.index] = paged.identity(node, kernel) if is_identity else kernel
        for name, value in constants.items():
            if isinstance(value, np.ndarray):
                constants[name] = read_only(value)
        captured = () if plan.classes.outer is None else tuple(sorted(free_names((plan.graph,))))
        return Routine(plan, captured, constants, kernels, protos, bodies)

    def _bodies(self, step: Step, proto: NodeProto, context: _Context) -> Mapping[str, Routine]:
        if step.function is not None:
            return {"": self._function(step.function, proto)}
        return {name: self.graph(body, context) for name, body in step.bodies.items()}

    def _function(self, function: FunctionKey, call: NodeProto) -> Routine:
        plan = self._plan.functions[function]
        proto = plan.graph.proto
        assert isinstance(proto, FunctionProto)
        attributes = call_attributes(proto, call)
        key = function, tuple(attributes[name].SerializeToString(deterministic=True) for name in sorted(attributes))
        if key not in self._functions:
            opsets = {opset.domain: opset.version for opset in proto.opset_import}
            self._functions[key] = self.graph(plan, _Context(opsets, attributes))
        return self._functions[key]


def _require_own_graphs(node: Node, proto: NodeProto) -> None:
    """A graph that a call passes as an attribute has been neither judged nor planned where it runs."""
    for name, _ in held_graphs(proto):
        if name not in node.subgraphs:
            raise PlanError(
                f"{node.label} takes its graph {name!r} from an attribute of the function",
                hint="inline the function first: mutcache.inline(model)",
                node=node.label,
            )


def own(value: Any, taken: Container[int] = ()) -> Any:
    """``value`` in contiguous memory of its own: no view, and none of the arrays whose id is in ``taken``."""
    if isinstance(value, np.ndarray):
        is_own = value.base is None and value.flags.c_contiguous and id(value) not in taken
        return value if is_own else value.copy()
    if is_device_array(value):
        return to_host(value)
    if isinstance(value, PageTable):
        return value.copy()
    if isinstance(value, list):
        return [own(item, taken) for item in value]
    if isinstance(value, dict):
        return {key: own(item, taken) for key, item in value.items()}
    return value


def _load_initializers(graph: Graph, supplied: Mapping[str, Array]) -> dict[str, Array]:
    """The initializers by name, read-only: those of the model, or what the caller supplied for them."""
    for name, array in supplied.items():
        if name not in graph.initializers:
            raise BindError(
                f"the model has no initializer {name!r}", hint=f"it has {', '.join(graph.initializers) or 'none'}"
            )
        proto = graph.initializers[name]
        dtype, shape = dtype_of(proto.data_type), tuple(proto.dims)
        if not isinstance(array, np.ndarray) and not is_device_array(array):
            raise BindError(f"initializer {name!r}: expected a numpy.ndarray, got {type(array).__name__}")
        if array.dtype != dtype or array.shape != shape:
            raise BindError(
                f"initializer {name!r} is {dtype}{show_dims(shape)}, got {array.dtype}{show_dims(array.shape)}"
            )
    for name in graph.sparse_initializers:
        raise PlanError(f"sparse initializer {name!r}: no kernel takes a sparse tensor", hint="store it as a dense one")
    loaded: dict[str, Array] = {}
    try:
        for name, proto in graph.initializers.items():
            array = supplied[name] if name in supplied else numpy_helper.to_array(cast("Any", proto))
            loaded[name] = array if is_device_array(array) else read_only(np.asarray(array))
    except Exception as error:
        raise PlanError(
            f"initializer {name!r} cannot be read: {error}", hint="load the model with its external data"
        ) from error
    return loaded
