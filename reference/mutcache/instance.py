"""A program on the storage of one binding: what a run executes.

Every node becomes an action on the values of its graph by name. A graph that runs inside another one runs on values of
its own. Which storage an update writes to is known when the storage is bound: a name of a class leads out of all
subgraphs to a name of the main graph or of a function, and a function is instantiated for the storages that its calls
pass. The address is verified at every aliased output all the same (MC-BIND-009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mutcache.backend import Backend, Writer
from mutcache.constructs import is_only_read, slots
from mutcache.errors import RunError
from mutcache.feeds import read_only
from mutcache.lent_table import LentTable
from mutcache.model import Graph, Node
from mutcache.ops import paged
from mutcache.ops.control_flow import control_flow
from mutcache.ops.dense import Attributes, CacheUpdate, Names
from mutcache.ops.standard import Kernel
from mutcache.plan import GraphPlan, Step
from mutcache.program import Routine, own
from mutcache.requirements import Req
from mutcache.schemas import page_axis
from mutcache.storage import Address, Array, address_of, pin, storage_of, to_host

#: Executes one step on the values of a graph, by name.
Action = Callable[[dict[str, Any]], None]


class Lent:
    """Storage that a caller lends to a binding.

    Args:
        array: the caller's array; its memory stays where it is.

    Attributes:
        array: the array.
        view: what kernels see of it: they cannot write through it.
        address: where the array is now.
        bound: the address that was bound.
    """

    __slots__ = ("_byte_range", "_pin", "address", "array", "bound", "view")

    address: Address

    def __init__(self, array: Array) -> None:
        self.array = array
        self.view = read_only(np.asarray(array))
        self.address = address_of(array)
        storage = storage_of(array)
        self.bound = storage.address
        self._byte_range = storage.byte_range
        self._pin = pin(array)

    def verify(self, label: str, output: str, source: str) -> None:
        """Check that the array, which the caller gets as ``output`` of node ``label``, is where it was bound.

        Raises:
            RunError: MC-BIND-009.
        """
        if (found := self.address.value) != self.bound:
            raise RunError(
                f"{label}: {output!r} would be at {found or 0:#x}, {source!r} was bound at {self._byte_range}",
                requirement=Req.MC_BIND_009,
                hint="the array was given other memory while it was bound",
                node=label,
            )

    def cache_update(self, attributes: Attributes, names: Names) -> Writer:
        """A CacheUpdate of the storage."""
        return CacheUpdate(self.array, attributes, names)


class DeviceLent(Lent):
    """Storage on a device: kernels of a backend update it, and whatever reads it gets a copy on the host.

    Args:
        array: the caller's array.
        view: what was judged of it and leased, as the backend adopted it.
        backend: the backend.
    """

    __slots__ = ("_backend",)

    def __init__(self, array: Any, view: Any, backend: Backend) -> None:
        self.array = array
        self.view = view
        self.address = address_of(array)
        storage = storage_of(view)
        self.bound = storage.address
        self._byte_range = storage.byte_range
        self._pin = pin(array)
        self._backend = backend

    def cache_update(self, attributes: Attributes, names: Names) -> Writer:
        """A CacheUpdate of the storage by a kernel of the device."""
        return self._backend.cache_update(self.view, attributes, names)


def lend(array: Any, view: Any, backend: Backend | None) -> Lent:
    """An array that was found right for a session with this backend; ``view`` is what was judged of it."""
    return Lent(array) if backend is None else DeviceLent(array, view, backend)


class _OnHost(Mapping[str, Any]):
    """The values of a graph as one kernel of the host reads them: device arrays as copies."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._copies: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._copies:
            self._copies[name] = to_host(self._values[name])
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Instance:
    """A graph with its kernels and storage, ready to run.

    Args:
        routine: the graph with its kernels.
        actions: its steps in order.
        node: the Loop or Scan whose body it is, if it is one.
    """

    def __init__(self, routine: Routine, actions: Sequence[Action], node: Node | None = None) -> None:
        self.graph: Graph = routine.plan.graph
        self._plan = routine.plan
        self._constants = {"": None, **routine.constants}
        self._actions = actions
        self._formals = tuple(value.name for value in self.graph.inputs)
        self._captured = routine.captured
        self._outputs = tuple(value.name for value in self.graph.outputs)
        # Of the body of a loop: the slots that must return the storage that they were given, and the outputs that are
        # names of a class but leave it as values, and would show what the next iteration writes.
        self._kept: tuple[tuple[int, int], ...] = ()
        self._copied: tuple[int, ...] = ()
        if node is not None:
            classes = routine.plan.classes
            self._kept = tuple(
                (slot.result, slot.formal)
                for slot in slots(node, self.graph)
                if self._formals[slot.formal] in classes.origins
            )
            self._copied = tuple(
                position
                for position, name in enumerate(self._outputs)
                if name in classes.root_of and is_only_read(node, self.graph, position)
            )

    def run(self, around: Mapping[str, Any], arguments: Sequence[Any], iteration: int | None = None) -> list[Any]:
        """The outputs, in order; see :class:`mutcache.ops.control_flow.Body`.

        Raises:
            RunError: a step failed; it says where, and which updates had completed.
        """
        values = self._constants.copy()
        for name in self._captured:
            values[name] = around[name]
        values.update(zip(self._formals, arguments, strict=True))
        try:
            for action in self._actions:
                action(values)
            for output, formal in self._kept:
                name = self._outputs[output]
                _verify_same(self.graph.path, name, values[name], self._formals[formal], arguments[formal])
        except RunError as error:
            raise locate(error, self._plan, values, iteration) from error.__cause__
        results = [values[name] for name in self._outputs]
        for position in self._copied:
            results[position] = own(results[position])
        return results


#: What a caller lends: an array or a page table.
Loan = Lent | LentTable


def instantiate(routine: Routine, storages: Mapping[str, Loan], *, has_device: bool = False) -> list[Action]:
    """The actions of the main graph, in order.

    Args:
        routine: the main graph.
        storages: what the caller lends, by the name of the mutable input.
        has_device: whether values may be on a device.
    """
    return list(_Instances(has_device).actions(routine, storages))


class _Instances:
    """Instantiates what one binding runs: a function once for all calls with the same attributes and storages."""

    def __init__(self, has_device: bool) -> None:
        self._has_device = has_device
        self._functions: dict[tuple[int, tuple[tuple[str, int], ...]], Instance] = {}

    def actions(self, routine: Routine, storages: Mapping[str, Loan]) -> Iterator[Action]:
        """The actions of a graph; ``storages`` by name in the main graph or function that it is part of."""
        classes = routine.plan.classes

        def lent(name: str) -> Loan | None:
            storage = classes.storage(name)
            return storages.get(storage.name) if storage.scope.outer is None else None

        for step in routine.plan.steps:
            index = step.node.index
            if step.bodies or step.function is not None:
                sources = {name: lent(name) for name in (*step.aliases.values(), *step.node.inputs) if name}
                kernel = self._construct(step, routine, storages, sources)
                yield _run_kernel(step, _verified(step, kernel, sources))
            elif step.node.is_cache_update:
                ((_, source),) = step.aliases.items()
                storage = lent(source)
                assert storage is not None  # what is mutated is lent (MC-ALIAS-010)
                proto = routine.protos[index]
                if isinstance(storage, LentTable):
                    yield _update_page(step, page_axis(proto), storage)
                else:
                    yield _update_cache(step, Attributes.of(proto), storage)
            elif step.aliases:
                ((output, source),) = step.aliases.items()
                yield _pass_through(step, output, source, lent(source))
            elif index in routine.kernels:
                kernel = routine.kernels[index]
                yield _run_kernel(step, _reading_host(kernel) if self._has_device else kernel)

    def _construct(
        self, step: Step, routine: Routine, storages: Mapping[str, Loan], sources: Mapping[str, Loan | None]
    ) -> Kernel:
        node, bodies = step.node, routine.bodies[step.node.index]
        if step.function is not None:
            return _call(step, self._function(bodies[""], step, sources))
        return control_flow(
            node,
            routine.protos[node.index],
            {
                attribute: Instance(body, tuple(self.actions(body, storages)), node)
                for attribute, body in bodies.items()
            },
        )

    def _function(self, routine: Routine, step: Step, sources: Mapping[str, Loan | None]) -> Instance:
        formals = (value.name for value in routine.plan.graph.inputs)
        passed = {formal: sources.get(name) for formal, name in zip(formals, step.node.inputs, strict=False)}
        storages = {formal: storage for formal, storage in passed.items() if storage is not None}
        key = id(routine), tuple((formal, id(storage)) for formal, storage in storages.items())
        if key not in self._functions:
            self._functions[key] = Instance(routine, tuple(self.actions(routine, storages)))
        return self._functions[key]


def _reading_host(kernel: Kernel) -> Kernel:
    """``kernel``, which reads device arrays as copies on the host."""
    return lambda values: kernel(_OnHost(values))


def _call(step: Step, body: Instance) -> Kernel:
    """The kernel of a call; an argument that is left out is None."""
    inputs = step.node.inputs
    names = (*inputs, *[""] * (len(body.graph.inputs) - len(inputs)))
    return lambda values: body.run({}, [values[name] for name in names])


def _verified(step: Step, kernel: Kernel, sources: Mapping[str, Loan | None]) -> Kernel:
    """``kernel``, whose aliased outputs are verified."""
    label, outputs = step.node.label, step.node.outputs
    edges = [(outputs.index(output), output, source, sources[source]) for output, source in step.aliases.items()]
    if not edges:
        return kernel

    def run(values: Mapping[str, Any]) -> Sequence[Any]:
        results = kernel(values)
        for index, output, source, storage in edges:
            _verify_same(label, output, results[index], source, values[source])
            if storage is not None:
                storage.verify(label, output, source)
        return results

    return run


def _verify_same(label: str, output: str, value: Any, source: str, original: Any) -> None:
    """Check that ``output`` is the storage of ``source``."""
    if value is not original and not (
        isinstance(value, np.ndarray)
        and isinstance(original, np.ndarray)
        and storage_of(value).byte_range == storage_of(original).byte_range
    ):
        raise RunError(
            f"{label}: {output!r} is not the storage of {source!r}",
            requirement=Req.MC_BIND_009,
            hint="this is an error of the runtime, not of the model",
            node=label,
        )


def _run_kernel(step: Step, kernel: Kernel) -> Action:
    """The action of a node whose kernel makes the outputs."""
    label, copies, releases = step.node.label, step.copies, step.releases
    count = len(step.node.outputs)
    outputs = [(index, name) for index, name in enumerate(step.node.outputs) if name]

    def run(values: dict[str, Any]) -> None:
        try:
            results = kernel(values)
        except RunError:
            raise  # of a body: it says where
        except Exception as error:
            raise RunError(f"{label} failed: {error}", node=label) from error
        if len(results) < count:
            raise RunError(f"{label} has {count} outputs, its kernel computes {len(results)}", node=label)
        for index, name in outputs:
            values[name] = own(results[index]) if name in copies else results[index]
        for name in releases:
            del values[name]

    return run


def _pass_through(step: Step, output: str, source: str, storage: Loan | None) -> Action:
    """The action of an Identity with MUST_ALIAS."""
    label, releases = step.node.label, step.releases

    def run(values: dict[str, Any]) -> None:
        if storage is not None:
            storage.verify(label, output, source)
        values[output] = values[source]
        for name in releases:
            del values[name]

    return run


def _update_cache(step: Step, attributes: Attributes, storage: Lent) -> Action:
    """The action of a CacheUpdate of ``storage``."""
    ((output, source),) = step.aliases.items()
    _, values_name, position_name = step.node.inputs
    label, releases, verify = step.node.label, step.releases, storage.verify
    update = storage.cache_update(attributes, Names(label, source, values_name, position_name))
    write, bound, address = update.write, storage.bound, storage.address

    def run(values: dict[str, Any]) -> None:
        # The caller gets ``array`` as the output: it must be the memory that is written, and the memory that was bound.
        if address.value != bound:
            verify(label, output, source)
        try:
            write(values[values_name], values[position_name])
        except RunError:
            raise
        except Exception as error:  # of a device: no memory for operands, or a launch that failed
            raise RunError(f"{label} failed: {error}", node=label) from error
        values[output] = values[source]
        for name in releases:
            del values[name]

    return run


def _update_page(step: Step, axis: int, storage: LentTable) -> Action:
    """The action of a PagedCacheUpdate of ``storage``."""
    ((output, source),) = step.aliases.items()
    cache, page_id, values_name, position, *wanted = step.node.inputs
    names = paged.Names(step.node.label, cache, page_id, values_name, position, "".join(wanted), output)
    update = paged.PagedCacheUpdate(storage, axis, names)
    label, releases = step.node.label, step.releases
    operands = names[2:6]

    def run(values: dict[str, Any]) -> None:
        try:
            update.write(*[values[name] for name in operands])  # the value of "" is None
        except MemoryError as error:
            raise RunError(
                f"{label}: no memory to encode {names.values!r}",
                requirement=Req.MC_PAGED_012,
                hint="the table is as it was",
                node=label,
            ) from error
        except RunError:
            raise
        except Exception as error:  # of a device: a launch that failed
            raise RunError(f"{label} failed: {error}", node=label) from error
        values[output] = values[source]
        for name in releases:
            del values[name]

    return run


def locate(
    error: RunError,
    plan: GraphPlan,
    values: Mapping[str, Any],
    iteration: int | None = None,
    *,
    is_outermost: bool = False,
) -> RunError:
    """``error`` as it is seen from around the graph in which it was raised.

    Args:
        error: what a step of the graph raised, or a step of a graph inside it.
        plan: the plan of the graph.
        values: the values of the graph: what a completed step made is among them.
        iteration: the number of the iteration.
        is_outermost: whether nothing is around the graph, so that all is known.

    Returns:
        The error with ``values["where"]``, the graphs in which it happened, outermost first; and
        ``values["completed"]``, the nodes that had mutated a class, in order.
    """
    path = plan.graph.path
    here = path if iteration is None else f"{path} iteration {iteration}"
    mutating = [step for step in plan.steps if step.writes]
    completed = [f"{here}: {step.node.label}" for step in mutating if step.writes[0] in values]
    if iteration:
        before = f"{path} iteration 0" if iteration == 1 else f"{path} iterations 0 to {iteration - 1}"
        completed = [f"{before}: {step.node.label}" for step in mutating] + completed
    known: Any = {"where": (), "completed": (), **error.values}
    known["where"] = (here, *known["where"])
    known["completed"] = (*completed, *known["completed"])
    message = error.message
    if is_outermost:
        if len(known["where"]) > 1:
            message = f"in {' in '.join(reversed(known['where'][1:]))}: {message}"
        if known["completed"]:
            message += f"; completed before: {', '.join(known['completed'])}"
    return RunError(message, requirement=error.requirement, hint=error.hint, **known)
