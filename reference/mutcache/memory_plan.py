"""The memory plan: what a run needs at its peak, with updates in place and, beside it, with updates that copy.

In place, all names of an alias class are one storage, and an update needs no byte for its cache (MC-PLAN-003). The
copying plan is that of a runtime without the contract: each update makes a new version of its cache beside the old
one. All else is the same in both. A value is counted from the step that makes it to the step that uses it last, a
graph output to the end; kernels that return views need less. How many pages a table has when a run starts is not
known: of its pages both plans count those that the run makes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mutcache.buffers import Buffer
from mutcache.model import Node, TensorType
from mutcache.page_plan import PlannedTable


class Role(enum.StrEnum):
    """What a storage is to the run."""

    CACHE = "cache"  # a READ_WRITE input: the caller's, across runs
    INPUT = "input"  # the caller's, during the run
    INTERMEDIATE = "intermediate"  # made and dropped by the run
    OUTPUT = "output"  # made by the run, handed out at its end
    CARRIED = "carried"  # a formal input of a loop body: the value of the iteration before, or a slice
    COPY = "copy"  # in the copying plan: a version of a cache that an update made


@dataclass(frozen=True, slots=True)
class PlannedStorage:
    """Memory that a value needs.

    Attributes:
        name: the value.
        names: all values with this storage, ``name`` first.
        role: what it is to the run.
        type: element type and sizes, None where nothing is known.
        bytes: its size, None when it is unknown.
        first: the step that makes it; -1 for what is there before.
        last: the last step that needs it; the last of all for what outlives the run.
    """

    name: str
    names: tuple[str, ...]
    role: Role
    type: TensorType | None
    bytes: int | None
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class StepMemory:
    """One step: its node, what is live while it runs (bodies included), and the plans of the bodies it may run."""

    node: Node
    bytes: int
    bodies: Mapping[str, ScopeMemory]


@dataclass(frozen=True, slots=True, eq=False)
class ScopeMemory:
    """What a run of one graph allocates. What comes from outside, by capture, argument or alias, is not in it.

    Attributes:
        path: the graph.
        steps: in the order of execution.
        storages: what it allocates, in order of the steps that make it.
        buffers: what its intermediates need when they take turns, the largest first.
        peak_bytes: the most that is live in one step.
        peak_step: the first such step.
    """

    path: str
    steps: tuple[StepMemory, ...]
    storages: tuple[PlannedStorage, ...]
    buffers: tuple[Buffer, ...]
    peak_bytes: int
    peak_step: int

    def walk(self) -> Iterator[ScopeMemory]:
        """This scope and those inside it, each once."""
        seen: set[ScopeMemory] = set()
        pending = [self]
        while pending:
            scope = pending.pop()
            if scope not in seen:
                seen.add(scope)
                yield scope
                pending += [body for step in reversed(scope.steps) for body in reversed(tuple(step.bodies.values()))]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """The bytes of a run.

    Attributes:
        dims: the sizes that it is made for.
        caches: the READ_WRITE inputs.
        inputs: the other inputs.
        initializer_bytes: the constants of the model in all its graphs; no part of any peak.
        in_place: what a run allocates.
        copying: what it allocates when every update copies its cache.
        unknown: values that are not counted because their size depends on data, as ``graph: value``; if there are
            any, the peaks are lower bounds.
        tables: the inputs that are page tables. Of their pages only those that a run makes are counted, in both peaks.
    """

    dims: Mapping[str, int]
    caches: tuple[PlannedStorage, ...]
    inputs: tuple[PlannedStorage, ...]
    initializer_bytes: int
    in_place: ScopeMemory
    copying: ScopeMemory
    unknown: tuple[str, ...] = ()
    tables: tuple[PlannedTable, ...] = ()

    @property
    def new_page_bytes(self) -> int:
        """The bytes of all pages that a run may create or replace; they stay with their tables."""
        return sum(table.new_bytes or 0 for table in self.tables)

    @property
    def cache_bytes(self) -> int:
        """The bytes of all caches."""
        return sum(cache.bytes or 0 for cache in self.caches)

    @property
    def input_bytes(self) -> int:
        """The bytes of all other inputs."""
        return sum(value.bytes or 0 for value in self.inputs)

    @property
    def peak_bytes(self) -> int:
        """Caches, inputs, the pages that a run makes, and the most that it allocates at once (MC-PLAN-003)."""
        return self.cache_bytes + self.input_bytes + self.new_page_bytes + self.in_place.peak_bytes

    @property
    def copying_peak_bytes(self) -> int:
        """The same if every update copies its cache; a table is not copied."""
        return self.cache_bytes + self.input_bytes + self.new_page_bytes + self.copying.peak_bytes

    @property
    def saved_bytes(self) -> int:
        """What the contract saves."""
        return self.copying_peak_bytes - self.peak_bytes
