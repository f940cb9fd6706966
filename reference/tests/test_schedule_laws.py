"""Random scripts on random models: what runs leave and return is what the oracle says, whatever the order of execution.

A script is played in two worlds that differ in the schedules of their sessions alone. After every step both must hold
the bytes that the functional oracle predicts, and the leases of exactly the live bindings.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.extra import numpy as hnp
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from random_models import Feed, Recipe, recipes

from mutcache.errors import BindError, RunError
from mutcache.executor import Binding, Session
from mutcache.leases import LEASES
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.oracle import OracleRefusal, OracleResult, run_model

MEMORY = 2048
GRAIN = 8


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """Keep what was there before out of the many collections below."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@dataclass(eq=False)
class Loaded:
    """A model and its session in each world."""

    recipe: Recipe
    proto: ModelProto
    sessions: list[Session]
    is_open: bool = True


@dataclass(eq=False)
class Bound:
    """A binding in each world; ``places`` are the bytes of the memory that each cache has."""

    loaded: Loaded
    places: dict[str, range]
    bindings: list[Binding]


class Scripts(RuleBasedStateMachine):
    """Loads, binds, runs, refusals and releases, in two worlds at once."""

    def __init__(self) -> None:
        super().__init__()
        # Nothing else begins where the memory ends: an empty claim there is one on this memory.
        self.worlds = [np.zeros(MEMORY + 2 * GRAIN, np.uint8)[GRAIN:-GRAIN] for _ in range(2)]
        self.expected = np.zeros(MEMORY, np.uint8)
        self.loaded: list[Loaded] = []
        self.live: list[Bound] = []
        self.ended: list[Bound] = []
        self.returned: list[tuple[Array, bytes]] = []

    @initialize(recipe=recipes(), seed=st.integers(0, 99))
    def begin(self, recipe: Recipe, seed: int) -> None:
        self.load(recipe, seed)
        starts = dict(zip(recipe.caches, range(0, MEMORY, MEMORY // 4), strict=False))
        self.bind_at(self.loaded[0], _places(recipe, starts))

    @rule(recipe=recipes(), seed=st.integers(0, 99))
    def load(self, recipe: Recipe, seed: int) -> None:
        proto = recipe.proto()
        schedules = ("node-order" if seed % 2 else f"random:{seed}", f"random:{seed + 1}")
        self.loaded.append(Loaded(recipe, proto, [Session(proto, schedule=schedule) for schedule in schedules]))

    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        loaded = data.draw(st.sampled_from(self.loaded), "session")
        used = [place.start for bound in self.live for place in bound.places.values()]
        starts = {
            name: data.draw(st.integers(0, MEMORY // GRAIN - 32).map(lambda n: n * GRAIN) | st.sampled_from([0, *used]))
            for name in loaded.recipe.caches
        }
        self.bind_at(loaded, _places(loaded.recipe, starts))

    def bind_at(self, loaded: Loaded, places: dict[str, range]) -> None:
        asked = list(places.values())
        within = any(_meet(one, other) for index, one in enumerate(asked) for other in asked[:index])
        leased = any(_meet(one, other) for one in asked for bound in self.live for other in bound.places.values())
        bindings = []
        for world, session in enumerate(loaded.sessions):
            arrays = {name: self.cache(world, loaded.recipe, name, place) for name, place in places.items()}
            if loaded.is_open and not within and not leased:
                bindings.append(session.bind(arrays))
                continue
            with pytest.raises(BindError) as refused:
                session.bind(arrays)
            if loaded.is_open:
                assert refused.value.requirement is (Req.MC_BIND_004 if within else Req.MC_BIND_005)
        if bindings:
            self.live.append(Bound(loaded, places, bindings))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), times=st.integers(1, 3))
    def run(self, data: st.DataObject, times: int) -> None:
        bound = data.draw(st.sampled_from(self.live), "binding")
        for _ in range(times):
            self.run_once(bound, _draw_feeds(data, bound.loaded.recipe))

    def run_once(self, bound: Bound, feeds: dict[str, Array]) -> None:
        places, recipe = bound.places, bound.loaded.recipe
        caches = {name: self.cache(None, recipe, name, place).copy() for name, place in places.items()}
        try:
            wanted = run_model(serialize(bound.loaded.proto), {**caches, **feeds})
        except OracleRefusal as refusal:
            histories = refusal.classes
        else:
            for name, place in places.items():
                self.cache(None, recipe, name, place)[...] = wanted.classes[name][-1]
            for world, binding in enumerate(bound.bindings):
                self.check_outputs(world, bound, binding.run(feeds), wanted)
            return
        updates = {f"CacheUpdate (#{i})" for i, made in enumerate(recipe.nodes) if made.op_type == "CacheUpdate"}
        for world, binding in enumerate(bound.bindings):
            with pytest.raises(RunError) as refused:
                binding.run(feeds)
            assert refused.value.requirement in (Req.MC_DENSE_003, Req.MC_DENSE_004)
            assert refused.value.values["node"] in updates
            for name, place in places.items():
                reached = self.cache(world, recipe, name, place).tobytes()
                assert reached in [np.asarray(content).tobytes() for content in histories[name]]
        for name, place in places.items():  # they may have stopped at different updates: bring them together again
            left = self.cache(0, recipe, name, place)
            self.cache(1, recipe, name, place)[...] = left
            self.cache(None, recipe, name, place)[...] = left

    def check_outputs(self, world: int, bound: Bound, outputs: Mapping[str, Array], wanted: OracleResult) -> None:
        memory = self.worlds[world]
        assert list(outputs) == list(wanted.outputs)
        for name, array in outputs.items():
            expected = np.asarray(wanted.outputs[name])
            assert array.dtype == expected.dtype
            assert array.shape == expected.shape
            if name in wanted.root_of_output:
                assert _address(array) == _address(memory) + bound.places[wanted.root_of_output[name]].start
            else:
                assert array.tobytes() == expected.tobytes()
                assert not np.may_share_memory(array, memory)
                self.returned.append((array, array.tobytes()))

    @precondition(lambda self: any(bound.loaded.recipe.feeds for bound in self.live))
    @rule(data=st.data(), fault=st.sampled_from(["missing", "unknown", "mutable", "type", "rank", "size", "inside"]))
    def run_badly(self, data: st.DataObject, fault: str) -> None:
        bound = data.draw(st.sampled_from([bound for bound in self.live if bound.loaded.recipe.feeds]), "binding")
        recipe = bound.loaded.recipe
        cache, place = next(iter(bound.places.items()))
        feeds: dict[str, Any] = {name: np.zeros(feed.shape, feed.dtype) for name, feed in recipe.feeds.items()}
        last = list(feeds)[-1]  # the fault comes as late as it can
        for world, binding in enumerate(bound.bindings):
            storage = self.cache(world, recipe, cache, place)
            requirement: Req | None = None
            bad = dict(feeds)
            match fault:
                case "missing":
                    del bad[last]
                case "unknown":
                    bad["nothing"] = feeds[last]
                case "mutable":
                    bad[cache] = storage
                    requirement = Req.MC_BIND_001
                case "type":
                    bad[last] = feeds[last].astype(np.int16)
                    requirement = Req.MC_SHAPE_006
                case "rank":
                    bad[last] = feeds[last][np.newaxis]
                    requirement = Req.MC_SHAPE_006
                case "size" if feeds[last].ndim:
                    bad[last] = np.zeros((feeds[last].shape[0] + 1, *feeds[last].shape[1:]), feeds[last].dtype)
                    requirement = Req.MC_SHAPE_003
                case "inside" if feeds[last].dtype == storage.dtype and feeds[last].size:
                    bad[last] = np.broadcast_to(storage.reshape(-1)[-1], feeds[last].shape)
                    bad[last] = np.lib.stride_tricks.as_strided(
                        storage.reshape(-1)[-1:], feeds[last].shape, [0] * feeds[last].ndim
                    )
                    requirement = Req.MC_BIND_004
                case _:
                    return
            with pytest.raises(RunError) as refused:
                binding.run(bad)
            assert refused.value.requirement is requirement

    @rule(start=st.integers(0, MEMORY), content=st.binary(min_size=1, max_size=40))
    def write(self, start: int, content: bytes) -> None:
        """The caller writes, bound or not."""
        for memory in (*self.worlds, self.expected):
            part = memory[start : start + len(content)]
            part[...] = np.frombuffer(content, np.uint8)[: len(part)]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), how=st.sampled_from(["release", "forget"]))
    def release(self, data: st.DataObject, how: str) -> None:
        bound = data.draw(st.sampled_from(self.live), "binding")
        self.live.remove(bound)
        if how == "release":
            for binding in bound.bindings:
                binding.release()
            self.ended.append(bound)
        else:
            bound.bindings.clear()
            gc.collect()  # tracebacks of refusals may refer to it

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def run_released(self, data: st.DataObject) -> None:
        bound = data.draw(st.sampled_from(self.ended), "binding")
        feeds = _draw_feeds(data, bound.loaded.recipe)
        for binding in bound.bindings:
            with pytest.raises(RunError) as refused:
                binding.run(feeds)
            assert refused.value.requirement is Req.MC_BIND_006
            binding.release()

    @precondition(lambda self: len(self.loaded) > 1)
    @rule(data=st.data())
    def unload(self, data: st.DataObject) -> None:
        self.close(data.draw(st.sampled_from(self.loaded), "session"))

    def close(self, loaded: Loaded) -> None:
        for session in loaded.sessions:
            session.close()
        loaded.is_open = False
        self.ended += [bound for bound in self.live if bound.loaded is loaded]
        self.live = [bound for bound in self.live if bound.loaded is not loaded]

    @invariant()
    def bytes_are_as_expected(self) -> None:
        for memory in self.worlds:
            assert memory.tobytes() == self.expected.tobytes()

    @invariant()
    def leases_are_those_of_the_bindings(self) -> None:
        places = [entry for bound in self.live for entry in bound.places.items()]
        for memory in self.worlds:
            assert _held_in(memory) == sorted((name, place.start, place.stop) for name, place in places)

    def teardown(self) -> None:
        for loaded in self.loaded:
            self.close(loaded)
        for memory in self.worlds:
            assert _held_in(memory) == []
        for array, content in self.returned:
            assert array.tobytes() == content, "an output changed in a later run"

    def cache(self, world: int | None, recipe: Recipe, name: str, place: range) -> Array:
        """A cache in one of the worlds, or as it is expected to be."""
        memory = self.expected if world is None else self.worlds[world]
        return memory[place.start : place.stop].view(recipe.dtype).reshape(recipe.caches[name])


def _places(recipe: Recipe, starts: Mapping[str, int]) -> dict[str, range]:
    itemsize = recipe.dtype.itemsize
    sizes = {name: itemsize * int(np.prod(shape)) for name, shape in recipe.caches.items()}
    return {name: range(start, start + sizes[name]) for name, start in starts.items()}


def _meet(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _held_in(memory: Array) -> list[tuple[str, int, int]]:
    """Name, first and last byte of every claim of the process on ``memory``; what else is leased is not ours."""
    start = _address(memory)
    claims = [claim for group in LEASES.held().values() for claim in group]
    return sorted(
        (claim.name, claim.byte_range.start - start, claim.byte_range.stop - start)
        for claim in claims
        if start <= claim.byte_range.start <= start + memory.nbytes
    )


def _draw_feeds(data: st.DataObject, recipe: Recipe) -> dict[str, Array]:
    """Feeds of one run; seldom does a position not fit."""
    largest = max(max(shape) for shape in recipe.caches.values())
    positions = st.sampled_from([0, 0, 0, 0, 1, 1, 2, largest, -1, 2**63 - 1])

    def draw(name: str, feed: Feed) -> Array:
        if feed.is_position:
            return data.draw(hnp.arrays(np.int64, feed.shape, elements=positions), name)
        first = data.draw(st.integers(0, 255), name)
        return (np.arange(first, first + np.prod(feed.shape)) % 251).astype(feed.dtype).reshape(feed.shape)

    return {name: draw(name, feed) for name, feed in recipe.feeds.items()}


Scripts.TestCase.settings = settings(max_examples=150, stateful_step_count=12, deadline=None)
TestScripts = Scripts.TestCase
