"""A plan with its kernels: what all bindings of a session execute."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, cast

import numpy as np
from onnx import numpy_helper

from mutcache.errors import BindError, PlanError, RunError
from mutcache.feeds import read_only
from mutcache.model import Graph
from mutcache.ops.dense import Attributes, CacheUpdate
from mutcache.ops.standard import Kernel, StandardKernels
from mutcache.plan import ExecutionPlan, Step
from mutcache.requirements import Req
from mutcache.storage import Array, address_reader, dtype_of, show_dims, storage_of

#: Executes one step on the values of a run, by name.
Action = Callable[[dict[str, Any]], None]


class Program:
    """The kernels and constants of a plan.

    Args:
        plan: the plan.
        initializers: arrays to use in place of the initializers of these names.

    Attributes:
        plan: the plan.
        constants: initializers and results of Constant nodes by name; the arrays are read-only.

    Raises:
        PlanError: a node has no kernel, or an initializer cannot be read.
        BindError: ``initializers`` are not what the model declares.
    """

    def __init__(self, plan: ExecutionPlan, initializers: Mapping[str, Array]) -> None:
        self.plan = plan
        self.constants: dict[str, Any] = dict(_load_initializers(plan.model.graph, initializers))
        self._actions: dict[int, Action] = {}
        kernels = StandardKernels(plan.model)
        for step in plan.steps:
            if step.aliases:
                continue
            action = _run_kernel(step, kernels.load(step.node))
            if step.node.is_standard and step.node.op_type == "Constant":
                action(self.constants)
            else:
                self._actions[step.node.index] = action
        for name, value in self.constants.items():
            if isinstance(value, np.ndarray):
                self.constants[name] = read_only(value)

    def bind(self, mutable: Mapping[str, Array]) -> list[Action]:
        """The actions of a binding, in order. ``mutable`` are its arrays by the name of their root."""
        actions: list[Action] = []
        for step in self.plan.steps:
            if step.node.is_cache_update:
                (output,) = step.aliases
                actions.append(_update_cache(step, mutable[self.plan.classes.root_of[output]]))
            elif step.aliases:
                actions += [_pass_through(output, source) for output, source in step.aliases.items()]
            elif step.node.index in self._actions:
                actions.append(self._actions[step.node.index])
        return actions


def _run_kernel(step: Step, kernel: Kernel) -> Action:
    """The action of a node whose outputs own their storage."""
    label, copies, releases = step.node.label, step.copies, step.releases
    count = len(step.node.outputs)
    outputs = [(index, name) for index, name in enumerate(step.node.outputs) if name]

    def run(values: dict[str, Any]) -> None:
        try:
            results = kernel(values)
        except Exception as error:
            raise RunError(f"{label} failed: {error}", node=label) from error
        if len(results) < count:
            raise RunError(f"{label} has {count} outputs, its kernel computes {len(results)}", node=label)
        for index, name in outputs:
            values[name] = own(results[index]) if name in copies else results[index]
        for name in releases:
            del values[name]

    return run


def _pass_through(output: str, source: str) -> Action:
    """The action of an Identity with MUST_ALIAS."""

    def run(values: dict[str, Any]) -> None:
        values[output] = values[source]

    return run


def _update_cache(step: Step, cache: Array) -> Action:
    """The action of a CacheUpdate of ``cache``."""
    ((output, source),) = step.aliases.items()
    _, values_name, position_name = step.node.inputs
    update = CacheUpdate(cache, Attributes.of(step.node), (source, values_name, position_name))
    label, releases, storage = step.node.label, step.releases, storage_of(cache)
    address, nbytes, view = storage.address, storage.nbytes, read_only(np.asarray(cache))
    read_address = address_reader(cache)

    def run(values: dict[str, Any]) -> None:
        updated = update(values[values_name], values[position_name])
        if updated is not cache or read_address() != address or cache.nbytes != nbytes:
            raise RunError(
                f"{label}: {output!r} is at {storage_of(updated).byte_range}, {source!r} at {storage.byte_range}",
                requirement=Req.MC_BIND_009,
                hint="the array was given other memory while it was bound",
                node=label,
            )
        values[output] = view
        for name in releases:
            del values[name]

    return run


def own(value: Any, taken: Container[int] = ()) -> Any:
    """``value`` in contiguous memory of its own: no view, and none of the arrays whose id is in ``taken``."""
    if isinstance(value, np.ndarray):
        is_own = value.base is None and value.flags.c_contiguous and id(value) not in taken
        return value if is_own else value.copy()
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
        if not isinstance(array, np.ndarray):
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
            loaded[name] = read_only(
                np.asarray(supplied[name] if name in supplied else numpy_helper.to_array(cast("Any", proto)))
            )
    except Exception as error:
        raise PlanError(
            f"initializer {name!r} cannot be read: {error}", hint="load the model with its external data"
        ) from error
    return loaded
