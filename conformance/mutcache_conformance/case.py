"""A conformance case: a model, the storages of its values, and a script of steps with their expected outcomes.

A case is data. It holds no code and no expected bytes: what memory must look like after a step is computed by
the oracle from the model and the bytes before the step. Everything here is immutable and has a JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from mutcache.requirements import Phase, Profile, Req

#: The phases that a harness can tell apart from outside; decoding, checking and planning are all loading.
LOAD: Final = frozenset({Phase.DECODE, Phase.CHECK, Phase.PLAN})
BIND: Final = frozenset({Phase.BIND})
RUN: Final = frozenset({Phase.RUN})


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that the harness lends to the runtime.

    Attributes:
        name: the storage's name in the script.
        dtype: element type, a TensorProto.DataType number.
        shape: the dimensions; a scalar is ``()``.
        content: initial bytes of the elements in row-major order, whatever ``strides`` says; None is zeros,
            never written, so that a storage of many gigabytes costs nothing.
        strides: bytes per step of each dimension; None is row-major without gaps.
        writable: False passes a read-only descriptor and says so.
        alignment: bytes; the range starts at a multiple of it, plus ``misalignment``.
        misalignment: bytes by which the start is moved off its alignment.
        origin: ``caller``, or ``initializer:NAME`` when it holds an initializer of a loaded model.
        within: name of another storage whose memory it lies in, or "" for memory of its own.
        offset: with ``within``: first byte, relative to the start of that storage; may be negative.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    content: bytes | None = None
    strides: tuple[int, ...] | None = None
    writable: bool = True
    alignment: int = 64
    misalignment: int = 0
    origin: str = "caller"
    within: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a table that the harness lends to the runtime.

    Attributes:
        quantized_type: index of its declaration in ``ModelProto.quantizations``.
        dims: its logical dimensions.
        storage: the storage of the case, of UINT8 elements, that holds its payload.
        nbytes: the ``n_bytes`` that is declared; None is the size of the storage, which is the honest one.
        key: its key in a map; None in a sequence.
    """

    quantized_type: int
    dims: tuple[int, ...]
    storage: str
    nbytes: int | None = None
    key: int | None = None


@dataclass(frozen=True, slots=True)
class PageTable:
    """A page table that can be bound, or fed, where a storage can.

    What runs make of it stays: the table of a later step has the pages that earlier runs left.

    Attributes:
        name: its name in the script; storages and tables share one namespace.
        pages: the pages that it has at first.
        container: what the model's value is.
        budget: bytes that the runtime may allocate for pages in each binding of the table; None is no limit.
    """

    name: str
    pages: tuple[Page, ...] = ()
    container: Literal["sequence", "map"] = "sequence"
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Expect:
    """What a step must do: succeed (no phases), or be refused in one of ``rejected_in``.

    Where the specification leaves the choice, ``may_succeed`` says so: both are right.
    """

    rejected_in: frozenset[Phase] = frozenset()
    may_succeed: bool = False

    @property
    def is_rejection(self) -> bool:
        """Whether the step must be refused."""
        return bool(self.rejected_in) and not self.may_succeed


ACCEPT: Final = Expect()


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model into a session. ``initializers`` maps initializer names to storages that hold their values."""

    session: str
    model: str = "model"
    initializers: Mapping[str, str] = field(default_factory=dict)
    expect: Expect = ACCEPT


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind storages and page tables to the mutable inputs of a session, optionally storages to its outputs."""

    session: str
    binding: str
    mutable: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict)
    expect: Expect = ACCEPT


@dataclass(frozen=True, slots=True)
class Run:
    """Run a binding, or with ``binding`` "" the session without one.

    ``feeds`` maps ordinary inputs to storages, or to page tables. After an accepted run the harness compares every
    output, every mutable storage and every page with the oracle, the address of each aliased output with the address
    of its root, that of each page with where it was, and every other byte with the snapshot.
    A run that is made several ``times`` is one that changes nothing when it is made again; the harness compares
    after the last time.
    """

    session: str
    feeds: Mapping[str, str]
    binding: str = ""
    expect: Expect = ACCEPT
    times: int = 1


@dataclass(frozen=True, slots=True)
class Start:
    """Ask for a run, and go on while it is in flight, until ``Finish`` names it.

    The next step follows when the first bytes of a storage that the run updates have changed, or, when another run is
    in flight already, when the host has called the runtime. The case counts only if each request up to the ``Finish``
    of the first of them is taken up, or answered, while that is in flight. What storage of its binding holds in that
    time is not looked at.
    """

    run: str
    session: str
    feeds: Mapping[str, str]
    binding: str = ""
    expect: Expect = ACCEPT


@dataclass(frozen=True, slots=True)
class Finish:
    """Wait for a run that was started, and judge it as ``Run`` does. Runs of one binding end in the order of starts.

    With ``may_be_refused`` a refusal is as right as success.
    """

    run: str
    may_be_refused: bool = False
    expect: Expect = ACCEPT


@dataclass(frozen=True, slots=True)
class Release:
    """End a binding and its lease."""

    binding: str
    expect: Expect = ACCEPT


@dataclass(frozen=True, slots=True)
class Unload:
    """End a session."""

    session: str
    expect: Expect = ACCEPT


@dataclass(frozen=True, slots=True)
class Write:
    """The caller writes the elements of storage ``source`` to ``storage``; the runtime is not told."""

    storage: str
    source: str
    expect: Expect = ACCEPT


#: What the runtime is asked to do.
Request = Load | Bind | Run | Start | Finish | Release | Unload
Step = Request | Write


@dataclass(frozen=True, slots=True)
class Measure:
    """That memory is measured while the script is played, in a process that has done nothing else but such cases.

    The sessions of ``compare`` bind caches of different sizes, the smallest first, and do the same; what is done before
    them warms the process up. Their memory from load to the last run must not depend on the size, and no run but the
    first of each may take more than a fixed workspace; the very last one is made while it cannot have more.
    Runs that are made several times must not take more the more they are.
    From its load to its last run the session ``pages`` must not take more than 1.25 times the bytes of the pages that
    its runs create, and of those of another type than before as they were and as they are, and a fixed workspace.
    """

    compare: tuple[str, ...] = ()
    pages: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        id: ``area-NNN/what``, for example ``dense-003/overflow-by-one``: stable across nonces, never reused.
        requirements: what the case shows, most specific first.
        profile: the profile it counts for.
        title: one sentence for reports.
        models: serialized models by name (usually one, ``model``).
        storages: everything the script names.
        script: the steps, in order.
        twin: for a negative case the id of the valid case one field away, which must pass in the same run.
        needs: capabilities without which the case is unsupported, for example ``dtype:FLOAT8E4M3FN``.
        required: whether the case stands in the mustpass list (cases of optional dtypes do not).
        measure: that memory is measured, or None.
        tables: the page tables that the script names.
    """

    id: str
    requirements: tuple[Req, ...]
    profile: Profile
    title: str
    models: Mapping[str, bytes]
    storages: tuple[Storage, ...]
    script: tuple[Step, ...]
    twin: str = ""
    needs: frozenset[str] = frozenset()
    required: bool = True
    measure: Measure | None = None
    tables: tuple[PageTable, ...] = ()

    @property
    def overlaps(self) -> bool:
        """Whether several things are asked of the runtime at once."""
        return any(isinstance(step, Start) for step in self.script)

    @property
    def is_negative(self) -> bool:
        """Whether some step must be refused."""
        return any(step.expect.is_rejection for step in self.script)
