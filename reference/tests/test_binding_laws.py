"""Leases as a state machine: whatever callers do, storage belongs to at most one binding, and nothing leaks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mutcache.errors import BindError, RunError
from mutcache.executor import Binding, Session
from mutcache.leases import LEASES
from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import model, node, tensor, update

UINT8, INT64 = TensorProto.UINT8, TensorProto.INT64
MEMORY = 24

#: Two caches, of which the second takes what stands in the first, and an output that may be bound.
MODEL = model(
    [
        tensor("first", UINT8, ["m"], mutable=True),
        tensor("second", UINT8, ["n"], mutable=True),
        tensor("values", UINT8, ["length"]),
        tensor("position", INT64, []),
    ],
    [
        update("first", "values", "position", "first_updated", {"axis": 0}),
        update("second", "values", "position", "second_updated", {"axis": 0}),
        node("Identity", ["values"], ["echo"]),
    ],
    [
        tensor("first_updated", UINT8, ["m"], alias_of="first"),
        tensor("second_updated", UINT8, ["n"], alias_of="second"),
        tensor("echo", UINT8, ["length"]),
    ],
)


@dataclass(frozen=True, eq=False)
class Held:
    """What the test knows of a binding."""

    session: int
    first: range
    second: range
    echo: range | None
    binding: Binding

    @property
    def mutable(self) -> list[range]:
        return [self.first, self.second]

    @property
    def outputs(self) -> list[range]:
        return [] if self.echo is None else [self.echo]

    @property
    def claims(self) -> list[tuple[str, int, int]]:
        parts = {"first": self.first, "second": self.second, "echo": self.echo}
        return [_claim(name, part.start, part.stop) for name, part in parts.items() if part is not None]


def _claim(name: str, start: int, stop: int) -> tuple[str, int, int]:
    """A claim as it is compared: NumPy puts an empty part anywhere."""
    return (name, start, stop) if start < stop else (name, 0, 0)


def overlap(one: range, other: range) -> bool:
    return bool(set(one) & set(other))


parts = st.tuples(st.integers(0, MEMORY), st.integers(0, 6)).map(lambda part: range(part[0], min(sum(part), MEMORY)))


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """Keep what was there before out of the many collections below."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Leases(RuleBasedStateMachine):
    """Two sessions, one block of memory that both bind parts of, and a model of who holds which bytes."""

    bindings = Bundle("bindings")

    def __init__(self) -> None:
        super().__init__()
        # Nothing else begins where the memory ends: an empty claim there is one on this memory.
        self.memory = np.zeros(MEMORY + 2, np.uint8)[1:-1]
        self.expected = bytearray(MEMORY)
        self.sessions = [Session(MODEL), Session(MODEL)]
        self.held: list[Held] = []

    def part(self, part: range) -> Array:
        return self.memory[part.start : part.stop]

    @rule(target=bindings, session=st.integers(0, 1), first=parts, second=parts, echo=st.none() | parts)
    def bind(self, session: int, first: range, second: range, echo: range | None) -> Held | None:
        asked = [first, second, *([] if echo is None else [echo])]
        within = any(overlap(one, other) for i, one in enumerate(asked) for other in asked[:i])
        leased = any(
            overlap(one, other)
            for held in self.held
            for one, others in [(first, held.mutable + held.outputs), (second, held.mutable + held.outputs)]
            + ([] if echo is None else [(echo, held.mutable)])
            for other in others
        )
        storage = {"first": self.part(first), "second": self.part(second)}
        outputs = None if echo is None else {"echo": self.part(echo)}
        if within or leased:
            with pytest.raises(BindError) as refused:
                self.sessions[session].bind(storage, outputs)
            assert refused.value.requirement is (Req.MC_BIND_004 if within else Req.MC_BIND_005)
            return None
        binding = self.sessions[session].bind(storage, outputs)
        held = Held(session, first, second, echo, binding)
        self.held.append(held)
        return held

    @rule(held=bindings, position=st.integers(-1, 6), length=st.integers(0, 4), value=st.integers(1, 255))
    def run(self, held: Held | None, position: int, length: int, value: int) -> None:
        if held is None:
            return
        feeds = {"values": np.full(length, value, np.uint8), "position": position}
        done = [position >= 0 and position + length <= len(part) for part in held.mutable]
        written = held.mutable[: done.index(False)] if False in done else held.mutable
        if held not in self.held:
            with pytest.raises(RunError, match="released"):
                held.binding.run(feeds)
            return
        if False in done:
            with pytest.raises(RunError) as refused:
                held.binding.run(feeds)
            assert refused.value.requirement is (Req.MC_DENSE_003 if position >= 0 else Req.MC_DENSE_004)
        elif held.echo is not None and len(held.echo) != length:
            with pytest.raises(RunError, match="the array bound to it"):  # found when everything is computed
                held.binding.run(feeds)
        else:
            outputs = held.binding.run(feeds)
            for name, part in (("first_updated", held.first), ("second_updated", held.second)):
                assert outputs[name].__array_interface__["data"] == self.part(part).__array_interface__["data"]
            if held.echo is not None:
                self.expected[held.echo.start : held.echo.stop] = bytes([value]) * length
        for part in written:
            self.expected[part.start + position : part.start + position + length] = bytes([value]) * length

    @rule(held=bindings, part=parts)
    def run_on_its_own_storage(self, held: Held | None, part: range) -> None:
        if (
            held is not None
            and held in self.held
            and any(overlap(part, other) for other in held.mutable + held.outputs)
        ):
            with pytest.raises(RunError) as refused:
                held.binding.run({"values": self.part(part), "position": 0})
            assert refused.value.requirement is Req.MC_BIND_004

    @rule(held=consumes(bindings), how=st.sampled_from(["release", "twice", "context", "forget"]))
    def release(self, held: Held | None, how: str) -> None:
        if held is None:
            return
        if held in self.held:
            self.held.remove(held)
        if how == "context":
            with held.binding:
                pass
        elif how != "forget":
            held.binding.release()
            if how == "twice":
                held.binding.release()
        object.__setattr__(held, "binding", None)
        gc.collect()  # tracebacks of refusals may refer to it

    @rule(session=st.integers(0, 1), close=st.booleans())
    def replace_session(self, session: int, close: bool) -> None:
        if close:
            self.sessions[session].close()
            self.held = [held for held in self.held if held.session != session]
        else:  # its bindings stay alive, and belong to nobody in particular
            for held in self.held:
                if held.session == session:
                    object.__setattr__(held, "session", -1)
        self.sessions[session] = Session(MODEL)

    @invariant()
    def bytes_are_as_expected(self) -> None:
        assert self.memory.tobytes() == bytes(self.expected)

    @invariant()
    def leases_are_those_of_the_bindings(self) -> None:
        assert self.leased() == sorted(claim for held in self.held for claim in held.claims)

    def leased(self) -> list[tuple[str, int, int]]:
        """Every claim on the memory. What else the process has leased is not ours."""
        start = self.memory.__array_interface__["data"][0]
        return sorted(
            _claim(claim.name, claim.byte_range.start - start, claim.byte_range.stop - start)
            for claims in LEASES.held().values()
            for claim in claims
            if start <= claim.byte_range.start <= start + MEMORY
        )

    def teardown(self) -> None:
        for held in self.held:
            held.binding.release()
        for session in self.sessions:
            session.close()
        assert self.leased() == []


Leases.TestCase.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
TestLeases = Leases.TestCase
