"""Makes memory plans: sizes every value, follows the life of every storage, and adds up what is live in each step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mutcache.buffers import Span, share_buffers
from mutcache.classes import INITIAL, AliasClasses, ModelAliases
from mutcache.constructs import Construct, construct_of
from mutcache.errors import PlanError
from mutcache.memory_plan import MemoryPlan, PlannedStorage, Role, ScopeMemory, StepMemory
from mutcache.model import Dim, Graph, Model, Node, TensorType, Value, page_type
from mutcache.page_plan import plan_tables
from mutcache.schedule import NODE_ORDER, execution_order
from mutcache.scopes import captures, walk
from mutcache.sized import SizedGraph, scan_output_names
from mutcache.sizes import byte_size
from mutcache.sizing import size_model, value_inputs

#: Sizes and totals from here on are no memory of this world, and no INT64.
MAX_BYTES: Final = (1 << 63) - 1


def plan_memory(
    model: Model, aliases: ModelAliases, dims: Mapping[str, int], *, schedule: str = NODE_ORDER
) -> MemoryPlan:
    """The memory plan of a sound model.

    Args:
        model: the model.
        aliases: its alias classes.
        dims: a size for every symbolic dimension, and values of integer inputs on which sizes depend.
        schedule: the order of execution.

    Raises:
        PlanError: a dimension has no size, the wrong one, or none of this world; or the size of a cache is unknown.
    """
    sizes = _checked(model.graph, aliases.main, dims)
    sized = size_model(model, aliases, sizes)
    _require_sizes(model.graph, sized, dims)
    last = max(len(model.graph.nodes) - 1, 0)
    outside = [
        PlannedStorage(
            value.name,
            aliases.main.members.get(value.name, (value.name,)),
            Role.CACHE if value.is_mutable else Role.INPUT,
            sized.types.get(value.name),
            byte_size(sized.types.get(value.name)),
            -1,
            last,
        )
        for value in model.graph.inputs
        if page_type(value.type) is None
    ]
    tables = plan_tables(model, aliases, sized)
    for storage in outside:
        if storage.role is Role.CACHE and storage.bytes is None:
            raise PlanError(
                f"the size of the READ_WRITE input {storage.name!r} is unknown",
                hint="name its dimensions in the model, so that they can be given a size",
                value=storage.name,
            )
    in_place, copying = (_Planner(schedule, copies=copies).plan(sized) for copies in (False, True))
    unknown = [storage.name for storage in outside if storage.bytes is None]
    unknown += [f"new pages of {table.name}" for table in tables if table.new_bytes is None]
    found = MemoryPlan(
        dict(dims),
        tuple(storage for storage in outside if storage.role is Role.CACHE),
        tuple(storage for storage in outside if storage.role is Role.INPUT),
        _initializer_bytes(sized),
        in_place,
        copying,
        tuple(dict.fromkeys([f"main: {name}" for name in unknown] + list(_unknown(in_place)))),
        tables,
    )
    if found.copying_peak_bytes > MAX_BYTES or found.initializer_bytes > MAX_BYTES:
        raise PlanError(
            f"a run would need {found.copying_peak_bytes} bytes, more than any machine addresses",
            hint="give smaller dimensions",
        )
    return found


def _checked(graph: Graph, scope: AliasClasses, dims: Mapping[str, int]) -> dict[str, int]:
    """``dims`` and the sizes of symbols that an alias class knows, after every name and number was judged."""
    symbols = dict.fromkeys(
        dim
        for inner in walk(graph)
        for value in inner.declared()
        for dim in _declared_dims(value)
        if isinstance(dim, str)
    )
    values = value_inputs(graph)
    for name, size in dims.items():
        if name not in symbols and name not in values:
            known = ", ".join([*symbols, *values])
            raise PlanError(
                f"the model has no dimension {name!r}", hint=f"it has {known}" if known else "all its sizes are fixed"
            )
        if type(size) is not int or not 0 <= size <= MAX_BYTES:
            raise PlanError(
                f"dimension {name!r} cannot be {size!r}", hint="sizes are integers from 0 on", dimension=name
            )
    found = dict(dims)
    declared: dict[str, dict[tuple[Dim, ...], None]] = {}
    for value in graph.declared():
        declared.setdefault(scope.root_of.get(value.name, ""), {})[_declared_dims(value)] = None
    for root, shapes in declared.items():
        for one in shapes if root else ():
            for other in shapes:
                for dim, twin in zip(one, other, strict=False):
                    _learn(found, dim, twin, root)
    return found


def _declared_dims(value: Value) -> tuple[Dim, ...]:
    """The declared dimensions of a tensor, or of the pages of a container."""
    known = value.type if isinstance(value.type, TensorType) else page_type(value.type)
    return () if known is None else known.dims or ()


def _learn(found: dict[str, int], dim: Dim, size: Dim, root: str) -> None:
    """What two names of one class say of one dimension is the same."""
    known = found.get(size) if isinstance(size, str) else size
    if isinstance(dim, str) and isinstance(known, int) and known >= 0 and found.setdefault(dim, known) != known:
        raise PlanError(
            f"dimension {dim!r} cannot be {found[dim]}: another name of {root!r} says {known}",
            hint=f"the names of {root!r} are one storage, of one shape",
            dimension=dim,
        )


def _require_sizes(graph: Graph, sized: SizedGraph, dims: Mapping[str, int]) -> None:
    """Refuse symbols without a value: those of inputs, and those of values whose size nothing else tells."""
    needed = dict.fromkeys(symbol for value in graph.inputs for symbol in sized.lacking.get(value.name, ()))
    lacking = (symbols for each in sized.walk() for symbols in each.lacking.values())
    missing = dict.fromkeys([*needed, *(symbol for symbols in lacking for symbol in symbols)])
    if not missing:
        return
    # Once an input on which sizes depend has a value, no other value needs to be given a size.
    values = [name for name in value_inputs(graph) if name not in dims] if len(missing) > len(needed) else []
    options = (f"{name}=N" for name in (*needed, *(values or (name for name in missing if name not in needed))))
    raise PlanError(
        f"no size for the dimension{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}",
        hint=" ".join(f"--dim {shlex.quote(option)}" for option in options)
        + (f" (sizes depend on the value of {', '.join(map(repr, values))})" if values else ""),
        missing=tuple(missing),
    )


@dataclass
class _Draft:
    """A storage in the making."""

    role: Role
    first: int
    last: int
    names: list[str] = field(default_factory=list)


#: A root or a name of no class; in the copying plan also a version of a root, by the node that makes it.
_Key = str | tuple[str, int]


class _Planner:
    """Plans every graph of a model, each once; with ``copies`` for a runtime whose updates copy."""

    def __init__(self, schedule: str, *, copies: bool) -> None:
        self._schedule = schedule
        self._copies = copies
        self._planned: dict[SizedGraph, ScopeMemory] = {}

    def plan(self, sized: SizedGraph, holder: Node | None = None) -> ScopeMemory:
        """The plan of a graph that ``holder`` runs."""
        if sized not in self._planned:
            self._planned[sized] = self._plan(sized, holder)
        return self._planned[sized]

    def _plan(self, sized: SizedGraph, holder: Node | None) -> ScopeMemory:
        graph, scope = sized.graph, sized.scope
        nodes = [graph.nodes[index] for index in execution_order(scope, self._schedule)]
        drafts = self._drafts(sized, nodes, holder)
        storages = tuple(_storage(sized, draft) for draft in drafts.values())
        steps = tuple(self._steps(sized, nodes, storages))
        peak = max((step.bytes for step in steps), default=0)
        spans = [
            Span(storage.name, storage.bytes, storage.first, storage.last)
            for storage in storages
            if storage.role is Role.INTERMEDIATE and storage.bytes
        ]
        at = next((number for number, step in enumerate(steps) if step.bytes == peak), 0)
        return ScopeMemory(graph.path, steps, storages, share_buffers(spans), peak, at)

    def _key(self, sized: SizedGraph, name: str) -> _Key:
        """Which storage ``name`` has."""
        scope = sized.scope
        if name not in scope.root_of:
            return name
        root, version = scope.root_of[name], scope.version_of[name]
        return (root, version) if self._copies and version != INITIAL else root

    def _drafts(self, sized: SizedGraph, nodes: Sequence[Node], holder: Node | None) -> dict[_Key, _Draft]:
        """What the graph allocates, and for how long."""
        graph, scope = sized.graph, sized.scope
        end = max(len(nodes) - 1, 0)
        drafts: dict[_Key, _Draft] = {}
        if holder is not None and construct_of(holder) in (Construct.LOOP, Construct.SCAN):
            for value in graph.inputs:
                if value.name not in scope.origins or (self._copies and value.name in scope.mutations):
                    drafts[value.name] = _Draft(Role.CARRIED, 0, 0, [value.name])
        produced = {name for node in nodes for name in node.outputs if name} - sized.constants
        for step, node in enumerate(nodes):
            for name in node.outputs:
                key = self._key(sized, name)
                if name in produced and (key in produced or isinstance(key, tuple)):
                    role = Role.COPY if isinstance(key, tuple) else Role.INTERMEDIATE
                    drafts.setdefault(key, _Draft(role, step, step)).names.append(name)
            for name in (*node.inputs, *(captures(node) if node.subgraphs else ())):
                if (draft := drafts.get(self._key(sized, name))) is not None:
                    draft.last = step
        for value in graph.outputs:
            if (draft := drafts.get(self._key(sized, value.name))) is not None:
                draft.last = end
                draft.role = Role.OUTPUT if draft.role is Role.INTERMEDIATE else draft.role
        for root in scope.mutable_roots() if holder is None else ():
            # What the caller sees in place, a copy has to hand out, whether the model returns it or not.
            if (draft := drafts.get((root, scope.mutations.get(root, (INITIAL,))[-1]))) is not None:
                draft.last = end
        return drafts

    def _steps(
        self, sized: SizedGraph, nodes: Sequence[Node], storages: Sequence[PlannedStorage]
    ) -> Iterator[StepMemory]:
        """What is live in each step.

        While a node runs its bodies, its own outputs do not exist yet, but for what a loop collects: the results of a
        body become the outputs of its node.
        """
        change = [0] * (len(nodes) + 1)
        made: dict[int, list[PlannedStorage]] = {}
        for storage in storages:
            change[storage.first] += storage.bytes or 0
            change[storage.last + 1 if nodes else 0] -= storage.bytes or 0
            if storage.role is not Role.CARRIED:
                made.setdefault(storage.first, []).append(storage)
        live = 0
        for step, node in enumerate(nodes):
            live += change[step]
            bodies = {name: self.plan(body, node) for name, body in sized.bodies.get(node.index, {}).items()}
            outputs = sum(storage.bytes or 0 for storage in made.get(step, ()))
            inside = max((body.peak_bytes for body in bodies.values()), default=0)
            if bodies:
                collected = scan_output_names(node, sized.bodies[node.index].values())
                inside += sum(
                    storage.bytes or 0 for storage in made.get(step, ()) if not collected.isdisjoint(storage.names)
                )
            yield StepMemory(node, live - outputs + max(outputs, inside), bodies)


def _storage(sized: SizedGraph, draft: _Draft) -> PlannedStorage:
    known = sized.types.get(draft.names[0])
    return PlannedStorage(
        draft.names[0], tuple(draft.names), draft.role, known, byte_size(known), draft.first, draft.last
    )


def _unknown(plan: ScopeMemory) -> Iterator[str]:
    for scope in plan.walk():
        for storage in scope.storages:
            if storage.bytes is None:
                yield f"{scope.path}: {storage.name}"


def _initializer_bytes(sized: SizedGraph) -> int:
    """The constants of every graph, once each."""
    counted: dict[Graph, int] = {}
    for each in sized.walk():
        if each.graph not in counted:
            names = {*each.graph.initializers, *each.constants}
            sparse = each.graph.sparse_initializers.values()
            counted[each.graph] = sum(byte_size(each.types.get(name)) or 0 for name in names) + sum(
                (byte_size(TensorType(part.data_type, tuple(part.dims))) or 0)
                for tensor in sparse
                for part in (tensor.values, tensor.indices)
            )
    return sum(counted.values())
