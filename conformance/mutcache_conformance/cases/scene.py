"""Scripts for the cases: what is loaded, bound and run, in which order, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from mutcache.proto import parse, serialize
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Phase, Profile, Req
from mutcache_conformance.case import (
    ACCEPT,
    LOAD,
    Bind,
    Case,
    Expect,
    Finish,
    Load,
    PageTable,
    Release,
    Run,
    Start,
    Step,
    Storage,
    Unload,
    Write,
)
from mutcache_conformance.oracle_pages import ContainerForm

Phases = frozenset[Phase]
#: No refusal: the step must succeed.
NEVER: Final[Phases] = frozenset()


@dataclass(frozen=True)
class Table:
    """A page table, and the storages in which its payloads lie; further ones may be the memory that those lie in."""

    table: PageTable
    payloads: tuple[Storage, ...] = ()


#: What the caller lends the runtime for a value.
Lent = Storage | Table


@dataclass(frozen=True)
class Program:
    """A model, with storage for every value that a run of it needs, by value name."""

    model: ModelProto
    mutable: Mapping[str, Lent]
    feeds: Mapping[str, Lent]

    def edited(self, edit: Callable[[ModelProto], object], feeds: Mapping[str, Lent] = MappingProxyType({})) -> Program:
        """The program with a copy of its model changed by ``edit``, and with other storage for some feeds."""
        model = ModelProto.FromString(serialize(self.model))
        edit(model)
        return replace(self, model=model, feeds={**self.feeds, **feeds})


class Scene:
    """A script in the making. Storages join it as the steps name them."""

    def __init__(self) -> None:
        self._models: dict[str, bytes] = {}
        self._storages: dict[str, Storage] = {}
        self._tables: dict[str, PageTable] = {}
        self._script: list[Step] = []

    def _own(self, named: Mapping[str, Lent]) -> dict[str, str]:
        return {name: self._own_one(lent) for name, lent in named.items()}

    def _own_one(self, lent: Lent) -> str:
        if isinstance(lent, Storage):
            return self.own(lent).name
        for payload in lent.payloads:
            self.own(payload)
        known = self._tables.setdefault(lent.table.name, lent.table)
        if known != lent.table:
            raise ValueError(f"two tables are called {lent.table.name!r}")
        return lent.table.name

    def own(self, storage: Storage) -> Storage:
        """Add a storage that no step names, such as the memory that others lie in."""
        known = self._storages.setdefault(storage.name, storage)
        if known != storage:
            raise ValueError(f"two storages are called {storage.name!r}")
        return storage

    def load(
        self,
        model: ModelProto,
        session: str = "session",
        *,
        called: str = "model",
        initializers: Mapping[str, Storage] | None = None,
        refused: Phases = NEVER,
        may_succeed: bool = False,
    ) -> Scene:
        """Load ``model``, kept in the case under the name ``called``."""
        data = serialize(model)
        if self._models.setdefault(called, data) != data:
            raise ValueError(f"two models are called {called!r}")
        self._script.append(Load(session, called, self._own(initializers or {}), Expect(refused, may_succeed)))
        return self

    def bind(
        self,
        mutable: Mapping[str, Lent],
        binding: str = "binding",
        *,
        session: str = "session",
        outputs: Mapping[str, Storage] | None = None,
        refused: Phases = NEVER,
    ) -> Scene:
        """Bind storage and tables to mutable inputs, and storage to outputs if the caller provides some."""
        self._script.append(Bind(session, binding, self._own(mutable), self._own(outputs or {}), Expect(refused)))
        return self

    def run(
        self,
        feeds: Mapping[str, Lent],
        binding: str = "binding",
        *,
        session: str = "session",
        refused: Phases = NEVER,
        times: int = 1,
    ) -> Scene:
        """Run ``binding``, or with "" the session without one."""
        self._script.append(Run(session, self._own(feeds), binding, Expect(refused), times))
        return self

    def start(
        self, run: str, feeds: Mapping[str, Storage], binding: str = "binding", *, session: str = "session"
    ) -> Scene:
        """Ask for a run of ``binding``, and go on while it is in flight."""
        self._script.append(Start(run, session, self._own(feeds), binding))
        return self

    def finish(self, run: str, *, refused: Phases = NEVER, may_be_refused: bool = False) -> Scene:
        """Wait for a run that was started."""
        self._script.append(Finish(run, may_be_refused, Expect(refused)))
        return self

    def release(self, binding: str = "binding") -> Scene:
        """Release a binding."""
        self._script.append(Release(binding, ACCEPT))
        return self

    def write(self, storage: Storage, source: Storage) -> Scene:
        """Write the elements of ``source`` to ``storage``, as the caller."""
        self._script.append(Write(self.own(storage).name, self.own(source).name))
        return self

    def unload(self, session: str = "session") -> Scene:
        """Unload a session."""
        self._script.append(Unload(session, ACCEPT))
        return self

    def whole(self, program: Program, session: str = "session", *, called: str = "model") -> Scene:
        """Load, bind, run, release and unload ``program``, all of which must succeed."""
        self.load(program.model, session, called=called)
        binding = f"{session}_binding" if program.mutable else ""
        if binding:
            self.bind(program.mutable, binding, session=session)
        self.run(program.feeds, binding, session=session)
        if binding:
            self.release(binding)
        return self.unload(session)

    def refused_load(self, program: Program, valid: Program) -> Scene:
        """The program must be refused when it is loaded; the valid one works after it."""
        return self.load(program.model, refused=LOAD).whole(valid, "other", called="valid")

    def refused_run(self, program: Program, valid: Program, phases: Phases) -> Scene:
        """The program must be refused at the latest when it runs; the valid one works after it."""
        self.load(program.model).bind(program.mutable).run(program.feeds, refused=phases)
        return self.release().unload().whole(valid, "other", called="valid")

    def case(
        self,
        case_id: str,
        requirements: tuple[Req, ...],
        title: str,
        *,
        twin: str = "",
        needs: frozenset[str] = frozenset(),
        required: bool = True,
        profile: Profile | None = None,
    ) -> Case:
        """The case. It counts for the profile of its first requirement, unless it needs more of a runtime.

        Where pages of one table may have several types, it needs the profile *heterogeneous*.
        """
        own = profile or requirements[0].entry.profile
        if own is Profile.PAGED and any(map(_mixes_types, self._models.values())):
            own = Profile.HETEROGENEOUS
        return Case(
            id=case_id,
            requirements=requirements,
            profile=own,
            title=title,
            models=self._models,
            storages=tuple(self._storages.values()),
            script=tuple(self._script),
            twin=twin,
            needs=needs,
            required=required,
            tables=tuple(self._tables.values()),
        )


def _mixes_types(data: bytes) -> bool:
    """Whether a container of a model takes pages of several types."""
    model = parse(data)
    forms = [ContainerForm.of(model, value.type) for value in model.graph.input]
    return any(len(form.allowed or form.quantizations) > 1 for form in forms if form is not None)


@dataclass(frozen=True)
class Fault:
    """One change of a valid model that must make a runtime refuse it.

    Attributes:
        what: id of the case.
        requirements: as in Case.
        title: as in Case.
        edit: changes the model.
        phases: where the refusal may come, when not only at load.
        feeds: storage, by value name, that goes with the changed model.
    """

    what: str
    requirements: tuple[Req, ...]
    title: str
    edit: Callable[[ModelProto], object]
    phases: Phases = LOAD
    feeds: Mapping[str, Lent] = field(default_factory=dict)


def family(
    twin: str,
    requirements: tuple[Req, ...],
    title: str,
    valid: Program,
    *faults: Fault,
    profile: Profile | None = None,
    needs: frozenset[str] = frozenset(),
) -> Iterator[Case]:
    """The valid program as a case of its own, the twin, and a negative case for each fault."""

    def case(scene: Scene, what: str, requirements: tuple[Req, ...], title: str, twin: str = "") -> Case:
        return scene.case(what, requirements, title, twin=twin, needs=needs, required=not needs, profile=profile)

    yield case(Scene().whole(valid), twin, requirements, title)
    for fault in faults:
        program = valid.edited(fault.edit, fault.feeds)
        if fault.phases == LOAD:
            scene = Scene().refused_load(program, valid)
        else:
            scene = Scene().refused_run(program, valid, fault.phases)
        yield case(scene, fault.what, fault.requirements, fault.title, twin)
