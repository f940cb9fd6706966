"""Runs a plan on storage of the host or of a device: sessions, bindings, and the verification of every aliased step."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeVar

import numpy as np

from mutcache.backend import Backend
from mutcache.check import check_model
from mutcache.decode import decode
from mutcache.errors import BindError, RunError
from mutcache.feeds import Feeds, Input, arrays_in
from mutcache.instance import Lent, instantiate, lend, locate
from mutcache.leases import LEASES, Claim, Lease, Use
from mutcache.lending import Lendable, Lending
from mutcache.lent_table import LentTable
from mutcache.model import Model
from mutcache.page_memory import HOST_PAGES
from mutcache.page_types import parse_declarations
from mutcache.paging import PageTable
from mutcache.plan import GraphPlan, plan
from mutcache.program import Program, own
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.schedule import NODE_ORDER
from mutcache.storage import (
    Array,
    DeviceArray,
    address_of,
    is_dense,
    is_device_array,
    pin,
    show_dims,
    storage_of,
    to_host,
)

_Storage = TypeVar("_Storage")


class Session:
    """A model that is checked, planned and ready to run. As a context manager it closes itself.

    Args:
        model: a ModelProto, or a decoded model.
        initializers: arrays to use in place of the initializers of these names. They are neither copied nor written,
            and as long as the session is open they are initializer storage, no byte of which can be bound as mutable.
            With a backend they may be on its device.
        schedule: in which order nodes run: ``node-order``, or ``random:SEED`` for an order drawn from all those that
            data and MC-PLAN-005 allow. Results do not depend on it.
        backend: runs updates, and gathers of pages, on a device, where then all mutable arrays and all pages have to
            be. Ordinary inputs may be there, and so may the arrays that take outputs. All other nodes run on the host:
            they read device arrays as copies, and outputs that are no cache are NumPy arrays.

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
        initializers: Mapping[str, Array | DeviceArray] | None = None,
        schedule: str = NODE_ORDER,
        backend: Backend | None = None,
    ) -> None:
        model = model if isinstance(model, Model) else decode(model)
        check_model(model)
        self.plan = plan(model, schedule=schedule)
        self._backend = backend
        self._pages = HOST_PAGES if backend is None else backend.pages
        supplied = {name: _initializer(name, array, backend) for name, array in _by_name(initializers).items()}
        self._program = program = Program(self.plan, supplied, self._pages)
        declarations = parse_declarations(model.proto)
        self._lending = Lending(self.plan, declarations, "cpu" if backend is None else backend.device)
        operands = dict(_operands(self.plan.main))
        self._inputs = tuple(
            Input(
                value,
                optional=value.name in program.main.constants,
                requirement=operands.get(value.name),
                names=self._lending.names.get(value.name, ()),
                declarations=declarations,
                backend=backend,
            )
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

    def bind(self, mutable: Mapping[str, Lendable], outputs: Mapping[str, Lendable] | None = None) -> Binding:
        """Lend storage to the session until the binding is released.

        Args:
            mutable: for each READ_WRITE input what runs update in place: an array, or for a sequence of or map to
                quantized tensors a PageTable. With a backend all of it is on its device.
            outputs: arrays that take outputs. For an output that aliases a mutable input only what is bound to that
                input will do; any other output is written into its array.

        Raises:
            BindError: MC-BIND-001 to 005, 007, 008 or 013, MC-PAGED-006, 007, 011 or 014, or the session is closed. No
                lease was taken.
        """
        mutable, outputs = _by_name(mutable), _by_name(outputs)
        # What an array of another library says of itself is asked once, and judged, leased and used as it was then.
        views = {name: self._adopted(name, array, Req.MC_BIND_007) for name, array in mutable.items()}
        targets = {name: self._adopted(name, array, Req.MC_BIND_013) for name, array in outputs.items()}
        symbols: dict[str, int] = {}
        claims = [
            *self._lending.claim_mutable(views, symbols),
            *self._lending.claim_outputs(views, targets, symbols),
        ]
        buffers = {
            claim.name: Buffer(outputs[claim.name], targets[claim.name]) for claim in claims if claim.use is Use.OUTPUT
        }
        with self._lock:
            if self._closed:
                raise BindError("the session is closed", hint="create a new session")
            lease = LEASES.acquire(claims)
            try:
                loans: dict[str, Lent | LentTable] = {
                    name: LentTable(storage, name, self._lending.names[name], lease, self._pages)
                    if isinstance(storage, PageTable)
                    else lend(storage, views[name], self._backend)
                    for name, storage in mutable.items()
                }
                arrays = {name: array for name, array in views.items() if not isinstance(array, PageTable)}
                tables = {name: loan for name, loan in loans.items() if isinstance(loan, LentTable)}
                taking = {name: buffer.view for name, buffer in buffers.items()}
                feeds = Feeds(self._inputs, symbols, arrays, tables, taking, self._protected)
                binding = Binding(_Bound(self._program, feeds, loans, buffers, lease, self._lease, self._backend))
            except BaseException:
                lease.release()  # the traceback would keep it alive
                raise
            self._bindings.add(binding)
        return binding

    def _adopted(self, name: str, array: Any, requirement: Req) -> Any:
        """A device array as the backend has it; what is on another device is left to be judged."""
        backend = self._backend
        if backend is None or not is_device_array(array):
            return array
        try:
            return backend.adopt(array) if storage_of(array).device == backend.device else array
        except TypeError as error:
            raise BindError(
                f"storage of {name!r}: {error}",
                requirement=requirement,
                hint=f"allocate it on {backend.device}; nothing is ever staged through a copy",
                value=name,
            ) from None

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


class Buffer:
    """An array that takes an output.

    Args:
        array: the caller's array.
        view: what was judged of it and leased.
    """

    __slots__ = ("address", "array", "bound", "view")

    def __init__(self, array: Any, view: Any) -> None:
        self.array = array
        self.view = view
        self.address = address_of(array)
        self.bound = storage_of(view).address


class _Bound:
    """A program on the storage of one binding; its runs must not overlap in time."""

    def __init__(
        self,
        program: Program,
        feeds: Feeds,
        loans: Mapping[str, Lent | LentTable],
        buffers: Mapping[str, Buffer],
        lease: Lease,
        constants_lease: Lease,
        backend: Backend | None,
    ) -> None:
        self.lease = lease
        self._backend = backend
        self._constants_lease = constants_lease  # runs read the initializers, whatever becomes of the session
        self._pins = [pin(buffer.array) for buffer in buffers.values()]
        self._feeds = feeds
        self._buffers = buffers
        self._root_of = program.plan.classes.root_of
        self._inputs = frozenset(value.name for value in program.plan.model.graph.inputs)
        self._tables = tuple((name, loan) for name, loan in loans.items() if isinstance(loan, LentTable))
        views = {name: loan.view for name, loan in loans.items()}
        self._values: dict[str, Any] = {"": None, **program.main.constants, **views}
        self._plan = program.plan.main
        self._actions = instantiate(program.main, loans, has_device=backend is not None)
        # The outputs in order; None for those that a run makes anew.
        bound = {name: loan.array for name, loan in loans.items()}
        self._outputs: dict[str, Any] = {
            output.name: bound.get(self._root_of.get(output.name, "")) for output in program.plan.model.graph.outputs
        }
        self._made = tuple(name for name, array in self._outputs.items() if array is None)

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        values = self._values.copy()
        self._feeds.read(feeds, values)
        for _, table in self._tables:
            table.begin(self._feeds.symbols, lambda: arrays_in(feeds))
        try:
            for action in self._actions:
                action(values)
            for name, table in self._tables:
                table.verify("the run", name, name)
            outputs = self._outputs.copy()
            if self._made:
                self._export(values, feeds, outputs)
        except RunError as error:
            raise locate(error, self._plan, values, is_outermost=True) from error.__cause__
        finally:
            for _, table in self._tables:
                table.end()
        return outputs

    def _export(self, values: Mapping[str, Any], feeds: Mapping[str, object], outputs: dict[str, Any]) -> None:
        """Enter the outputs that alias no mutable input; none of them shares storage by accident."""
        roots: dict[str, Any] = {}
        taken: set[int] = set()
        for name in self._made:
            root = self._root_of.get(name, "")
            array = feeds.get(root) if root in self._inputs else None
            if isinstance(array, np.ndarray | PageTable) or is_device_array(array):
                outputs[name] = array  # the model says that the output is this input
            elif root in roots:
                outputs[name] = roots[root]
            else:
                buffer = self._buffers.get(name)
                value = own(values[name], taken) if buffer is None else self._fill(name, buffer, values[name])
                taken.update(map(id, arrays_in(value)))
                outputs[name] = value
                if root:
                    roots[root] = value

    def _fill(self, name: str, buffer: Buffer, value: Any) -> Any:
        """Write an output into the array that the caller bound to it."""
        view = buffer.view
        if (found := buffer.address.value) != buffer.bound:
            raise RunError(
                f"the array bound to output {name!r} is at {found or 0:#x}, it was bound at {buffer.bound or 0:#x}",
                requirement=Req.MC_BIND_009,
                hint="the array was given other memory while it was bound",
                output=name,
            )
        if value.shape != view.shape or value.dtype != view.dtype:
            raise RunError(
                f"output {name!r} is {value.dtype}{show_dims(value.shape)}, the array bound to it "
                f"{view.dtype}{show_dims(view.shape)}",
                requirement=Req.MC_BIND_013,
                hint="bind an array of the output's shape in this run",
                output=name,
            )
        if isinstance(view, np.ndarray):
            np.copyto(view, to_host(value))
        else:
            assert self._backend is not None  # else it was not lent
            self._backend.write(view, to_host(value))
        return buffer.array


def _operands(plan: GraphPlan) -> Iterator[tuple[str, Req]]:
    """What updates and gathers take besides the cache, and what speaks of its type, in a graph and its subgraphs."""
    for step in plan.steps:
        node = step.node
        if node.is_cache_update or node.is_gather:
            is_dense = node.is_cache_update and not node.is_paged_update
            for name in node.inputs[1:]:
                yield name, Req.MC_SHAPE_006 if is_dense else Req.MC_PAGED_017
        for body in step.bodies.values():
            yield from _operands(body)


def _by_name(storages: Mapping[str, _Storage] | None) -> dict[str, _Storage]:
    if storages is None:
        return {}
    if not isinstance(storages, Mapping):
        raise BindError(f"expected storage by name, got {type(storages).__name__}", hint="bind({'cache': array})")
    return dict(storages)


def _initializer(name: str, array: Any, backend: Backend | None) -> Any:
    """An array in an initializer's place, as runs can use it."""
    if not is_device_array(array):
        return array
    try:
        storage = storage_of(array)
        if backend is None or storage.device != backend.device:
            where = "the host" if backend is None else f"the host or {backend.device}"
            raise BindError(f"initializer {name!r} is on {storage.device}", hint=f"supply it on {where}")
        view = backend.adopt(array)
        storage = storage_of(view)
    except TypeError as error:
        raise BindError(f"initializer {name!r}: {error}", hint="supply a numpy.ndarray") from None
    if not is_dense(storage):
        raise BindError(
            f"initializer {name!r} is at {storage.address:#x} with strides {storage.strides} of shape "
            f"{show_dims(storage.shape)}: not contiguous, or not aligned to {storage.dtype.alignment}",
            hint="kernels read device arrays where they are: supply a contiguous copy",
        )
    return view
