"""Runs a plan on NumPy storage: sessions, bindings, and the verification of every aliased step."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from mutcache.check import check_model
from mutcache.decode import decode
from mutcache.errors import BindError, RunError
from mutcache.feeds import Feeds, Input, arrays_in
from mutcache.instance import Lent, instantiate, locate
from mutcache.model import Model, TensorType, Value
from mutcache.plan import GraphPlan, plan
from mutcache.program import Program, own
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.schedule import NODE_ORDER
from mutcache.storage import (
    LEASES,
    Array,
    Claim,
    Lease,
    Use,
    check_writable_storage,
    match_dims,
    pin,
    show_dims,
    storage_of,
)


class Session:
    """A model that is checked, planned and ready to run. As a context manager it closes itself.

    Args:
        model: a ModelProto, or a decoded model.
        initializers: arrays to use in place of the initializers of these names. They are neither copied nor written,
            and as long as the session is open they are initializer storage, no byte of which can be bound as mutable.
        schedule: in which order nodes run: ``node-order``, or ``random:SEED`` for an order drawn from all those that
            data and MC-PLAN-005 allow. Results do not depend on it.

    Attributes:
        plan: the execution plan.

    Raises:
        DecodeError: ``model`` is no model of this package.
        CheckError: the model violates the specification.
        PlanError: it cannot be executed, or there is no such schedule.
        BindError: ``initializers`` are not what the model declares, or lie in storage that a binding holds.
    """

    def __init__(
        self,
        model: ModelProto | Model,
        *,
        initializers: Mapping[str, Array] | None = None,
        schedule: str = NODE_ORDER,
    ) -> None:
        model = model if isinstance(model, Model) else decode(model)
        check_model(model)
        self.plan = plan(model, schedule=schedule)
        self._graph = model.graph
        # What any name of a class declares holds for the storage of its root (MC-SHAPE-004).
        self._names: dict[str, list[Value]] = {}
        for scope in self.plan.classes.walk():
            for value in scope.graph.declared():
                storage = scope.storage(value.name)
                if storage.scope is self.plan.classes:
                    self._names.setdefault(storage.name, []).append(value)
        self._program = program = Program(self.plan, _arrays_by_name(initializers))
        operands = set(_operands(self.plan.main))
        self._inputs = tuple(
            Input(value, optional=value.name in program.main.constants, is_operand=value.name in operands)
            for value in model.graph.inputs
            if not value.is_mutable
        )
        # A CacheUpdate does not write to its other operands; of kernels that are not ours this is not known.
        self._protected = frozenset(value.name for value in model.graph.outputs).union(
            *(step.reads for step in self.plan.steps if not step.node.is_cache_update)
        )
        self._lock = threading.RLock()  # a finalizer may close the session while this thread binds
        self._closed = False
        self._bindings: weakref.WeakSet[Binding] = weakref.WeakSet()
        self._lease = LEASES.acquire(
            Claim(name, storage_of(array).byte_range, Use.INITIALIZER)
            for name, value in program.main.constants.items()
            for array in arrays_in(value)
        )
        self._unbound = None if self.plan.mutable else self.bind({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def bind(self, mutable: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Binding:
        """Lend storage to the session until the binding is released.

        Args:
            mutable: for each READ_WRITE input the array that runs update in place.
            outputs: arrays that take outputs. For an output that aliases a mutable input only the array of that input
                will do; any other output is written into its array.

        Raises:
            BindError: MC-BIND-001 to 005, 007, 008 or 013, or the session is closed. No lease was taken.
        """
        mutable, outputs = _arrays_by_name(mutable), _arrays_by_name(outputs)
        symbols: dict[str, int] = {}
        claims = [*self._claim_mutable(mutable, symbols), *self._claim_outputs(mutable, outputs, symbols)]
        buffers = {claim.name: outputs[claim.name] for claim in claims if claim.use is Use.OUTPUT}
        with self._lock:
            if self._closed:
                raise BindError("the session is closed", hint="create a new session")
            lease = LEASES.acquire(claims)
            try:
                feeds = Feeds(self._inputs, symbols, mutable, buffers, self._protected)
                binding = Binding(_Bound(self._program, feeds, mutable, buffers, lease, self._lease))
            except BaseException:
                lease.release()  # the traceback would keep it alive
                raise
            self._bindings.add(binding)
        return binding

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        """Run a model without mutable inputs.

        Args:
            feeds: the inputs by name: arrays, or plain numbers for scalars.

        Returns:
            The outputs by name. No output shares storage with a feed or an initializer, unless the model says so.

        Raises:
            RunError: MC-BIND-001 when the model has mutable inputs; else as `Binding.run`.
        """
        if self._unbound is None:
            names = ", ".join(map(repr, self.plan.mutable))
            raise RunError(
                f"{names}: a READ_WRITE input cannot be supplied as an ordinary value",
                requirement=Req.MC_BIND_001,
                hint="bind its storage: session.bind({...}), then run the binding",
            )
        return self._unbound.run(feeds)

    def close(self) -> None:
        """Release all bindings and the initializers; a run in flight is waited for. A second call does nothing."""
        with self._lock:
            self._closed = True
            bindings = list(self._bindings)
        for binding in bindings:
            binding.release()
        self._lease.release()

    def _claim_mutable(self, mutable: Mapping[str, Array], symbols: dict[str, int]) -> list[Claim]:
        types = {value.name: value.type for value in self._graph.inputs if value.is_mutable}
        for name in mutable:
            if name not in types:
                raise BindError(
                    f"{name!r} is no READ_WRITE input of the model",
                    hint=f"READ_WRITE inputs: {', '.join(types) or 'none'}; feed all others to run()",
                )
        claims = []
        for name, declared in types.items():
            if name not in mutable:
                raise BindError(
                    f"no storage for the READ_WRITE input {name!r}",
                    requirement=Req.MC_BIND_001,
                    hint="bind storage to every mutable input",
                )
            assert isinstance(declared, TensorType)  # the plan refuses every other type
            storage = check_writable_storage(name, mutable[name], declared, symbols)
            for value in self._names[name]:
                if isinstance(value.type, TensorType) and (
                    problem := match_dims(value.type.dims, storage.shape, symbols)
                ):
                    raise BindError(
                        f"storage of {name!r}, also named {value.name!r}: {problem}",
                        requirement=Req.MC_BIND_007,
                        hint="allocate the array with the shape that all names of the cache declare",
                        value=value.name,
                        got=storage.shape,
                    )
            claims.append(Claim(name, storage.byte_range, Use.MUTABLE))
        return claims

    def _claim_outputs(
        self, mutable: Mapping[str, Array], outputs: Mapping[str, Array], symbols: Mapping[str, int]
    ) -> list[Claim]:
        types = {value.name: value.type for value in self._graph.outputs}
        claims = []
        for name, array in outputs.items():
            if name not in types:
                raise BindError(f"the model has no output {name!r}", hint=f"outputs: {', '.join(types)}")
            declared = types[name]
            if not isinstance(declared, TensorType):
                raise BindError(f"output {name!r} is no tensor", hint="leave it unbound")
            # Symbols that inputs do not fix get their size in each run.
            root = self.plan.classes.root_of.get(name)
            storage = check_writable_storage(name, array, declared, dict(symbols), in_place=root is not None)
            if root is None:
                claims.append(Claim(name, storage.byte_range, Use.OUTPUT))
            elif root not in mutable or storage.byte_range != storage_of(mutable[root]).byte_range:
                raise BindError(
                    f"output {name!r} aliases {root!r} and cannot have storage of its own ({storage.byte_range})",
                    requirement=Req.MC_BIND_008,
                    hint=f"leave it unbound, or bind the array of {root!r}",
                )
        return claims


class Binding:
    """Storage lent to a session, and runs that update it. A context manager that releases it.

    Made by `Session.bind`. The lease ends with `release`, when the session is closed, or when nobody refers to the
    binding any more; a failed run does not end it.
    """

    def __init__(self, bound: _Bound) -> None:
        self._bound: _Bound | None = bound
        # A run may call back into the binding in its own thread: finalizers, and feeds that are Python objects.
        self._lock = threading.RLock()
        self._running = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        """Run the model once. Runs of one binding, from whatever threads, follow one another.

        Args:
            feeds: the ordinary inputs by name: arrays, or plain numbers for scalars.

        Returns:
            The outputs by name. One that aliases a mutable input is the very array that is bound to it; every other
            output shares storage with nothing, unless the model says so.

        Raises:
            RunError: a feed is missing, unknown, or not as declared (MC-BIND-001: it is mutable; MC-BIND-004: it
                overlaps bound storage; MC-SHAPE-003 or 006: its shape or type is wrong); an update is refused
                (MC-DENSE-003, 004) or its storage moved (MC-BIND-009); a node fails; the binding is released
                (MC-BIND-006), or a run of it calls back (MC-BIND-011). Updates that completed stay, the failing one
                wrote nothing, and the binding stays usable. Once nodes run, ``values["where"]`` has the graphs in which
                it happened, outermost first, and ``values["completed"]`` the nodes that had mutated a cache, in order;
                both name the iteration of a loop body.
        """
        if type(feeds) is not dict:
            if not isinstance(feeds, Mapping):
                raise RunError(f"expected feeds by name, got {type(feeds).__name__}", hint="run({'values': array})")
            feeds = dict(feeds)
        with self._lock:
            bound = self._bound
            if bound is None:
                raise RunError("the binding is released", requirement=Req.MC_BIND_006, hint="bind the storage again")
            if self._running:
                raise RunError(
                    "a run of the binding called for another one", requirement=Req.MC_BIND_011, hint="run it afterwards"
                )
            self._running = True
            try:
                return bound.run(feeds)
            finally:
                self._running = False
                if self._bound is None:
                    bound.lease.release()

    def release(self) -> None:
        """End the lease. A second call does nothing.

        A run in flight in another thread is waited for. One that calls this in its own thread ends the lease when it
        ends.
        """
        with self._lock:
            bound, self._bound = self._bound, None
            if bound is not None and not self._running:
                bound.lease.release()


class _Bound:
    """A program on the storage of one binding; its runs must not overlap in time."""

    def __init__(
        self,
        program: Program,
        feeds: Feeds,
        mutable: Mapping[str, Array],
        buffers: Mapping[str, Array],
        lease: Lease,
        constants_lease: Lease,
    ) -> None:
        self.lease = lease
        self._constants_lease = constants_lease  # runs read the initializers, whatever becomes of the session
        self._pins = [pin(array) for array in buffers.values()]
        self._feeds = feeds
        self._buffers = buffers
        self._root_of = program.plan.classes.root_of
        self._inputs = frozenset(value.name for value in program.plan.model.graph.inputs)
        storages = {name: Lent(array) for name, array in mutable.items()}
        views = {name: storage.view for name, storage in storages.items()}
        self._values: dict[str, Any] = {"": None, **program.main.constants, **views}
        self._plan = program.plan.main
        self._actions = instantiate(program.main, storages)
        # The outputs in order; None for those that a run makes anew.
        self._outputs: dict[str, Any] = {
            output.name: mutable.get(self._root_of.get(output.name, "")) for output in program.plan.model.graph.outputs
        }
        self._made = tuple(name for name, array in self._outputs.items() if array is None)

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        values = self._values.copy()
        self._feeds.read(feeds, values)
        try:
            for action in self._actions:
                action(values)
            outputs = self._outputs.copy()
            if self._made:
                self._export(values, feeds, outputs)
        except RunError as error:
            raise locate(error, self._plan, values, is_outermost=True) from error.__cause__
        return outputs

    def _export(self, values: Mapping[str, Any], feeds: Mapping[str, object], outputs: dict[str, Any]) -> None:
        """Enter the outputs that alias no mutable input; none of them shares storage by accident."""
        roots: dict[str, Any] = {}
        taken: set[int] = set()
        for name in self._made:
            root = self._root_of.get(name, "")
            if root in self._inputs and isinstance(array := feeds.get(root), np.ndarray):
                outputs[name] = array  # the model says that the output is this input
            elif root in roots:
                outputs[name] = roots[root]
            else:
                buffer = self._buffers.get(name)
                value = own(values[name], taken) if buffer is None else _fill(name, buffer, values[name])
                taken.update(map(id, arrays_in(value)))
                outputs[name] = value
                if root:
                    roots[root] = value


def _operands(plan: GraphPlan) -> Iterator[str]:
    """The values that updates write, and their positions, in a graph and its subgraphs."""
    for step in plan.steps:
        if step.node.is_cache_update:
            yield from step.node.inputs[1:]
        for body in step.bodies.values():
            yield from _operands(body)


def _arrays_by_name(arrays: Mapping[str, Array] | None) -> dict[str, Array]:
    if arrays is None:
        return {}
    if not isinstance(arrays, Mapping):
        raise BindError(f"expected arrays by name, got {type(arrays).__name__}", hint="bind({'cache': array})")
    return dict(arrays)


def _fill(name: str, buffer: Array, value: Array) -> Array:
    """Write an output into the array that the caller bound to it."""
    if value.shape != buffer.shape or value.dtype != buffer.dtype:
        raise RunError(
            f"output {name!r} is {value.dtype}{show_dims(value.shape)}, "
            f"the array bound to it {buffer.dtype}{show_dims(buffer.shape)}",
            requirement=Req.MC_BIND_013,
            hint="bind an array of the output's shape in this run",
            output=name,
        )
    np.copyto(buffer, value)
    return buffer
