"""Laws of memory plans, over random models, against a simulation that looks at every step afresh."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from random_models import Recipe, recipes

import mutcache
from mutcache.decode import decode
from mutcache.memory_plan import MemoryPlan, Role, ScopeMemory
from mutcache.proto.onnx_ml import ModelProto


def memory(made: ModelProto) -> MemoryPlan:
    found = mutcache.plan(decode(made), {}).memory  # recipes are sound: they need no check
    assert found is not None
    return found


class Simulation:
    """What is in memory in each step, from the recipe alone: a storage is a cache, a version, or a value."""

    def __init__(self, recipe: Recipe, *, copies: bool) -> None:
        self.nodes = recipe.nodes
        self.outputs = [output.name for output in recipe.outputs]
        if copies:  # the caller wants the last version of each cache, returned or not
            self.outputs += recipe.newest.values()
        self.owner = {name: name for name in recipe.caches}
        self.size: dict[str, int] = {}
        width = recipe.dtype.itemsize
        for made in self.nodes:
            (output,) = made.output
            is_alias = bool(made.output_alias)
            if is_alias and not (copies and made.op_type == "CacheUpdate"):
                self.owner[output] = self.owner[made.input[0]]
                continue
            self.owner[output] = output
            if made.op_type == "Shape":
                self.size[output] = 8 * len(recipe.names[made.input[0]])
            elif made.op_type == "Size":
                self.size[output] = 8
            else:
                shape = recipe.names[output] if is_alias else recipe.values[output]
                count = 1
                for size in shape:
                    count *= size
                self.size[output] = count * width

    def live(self) -> Iterator[set[str]]:
        """The storages in each step that the run has made and needs now or later."""
        for step in range(len(self.nodes)):
            made = {self.owner[name] for node in self.nodes[: step + 1] for name in node.output}
            now = {self.owner[name] for name in self.nodes[step].output}
            later = {self.owner[name] for node in self.nodes[step:] for name in node.input if name in self.owner} | {
                self.owner[name] for name in self.outputs
            }
            yield {name for name in made & (now | later) if name in self.size}

    def bytes(self) -> list[int]:
        return [sum(self.size[name] for name in names) for names in self.live()]


def steps(scope: ScopeMemory) -> list[int]:
    return [step.bytes for step in scope.steps]


@given(recipes())
@settings(deadline=None)
def test_both_plans_are_what_a_simulation_finds(recipe: Recipe) -> None:
    found = memory(recipe.proto())
    assert found.unknown == ()
    assert steps(found.in_place) == Simulation(recipe, copies=False).bytes()
    assert steps(found.copying) == Simulation(recipe, copies=True).bytes()


@given(recipes())
@settings(deadline=None)
def test_copying_never_needs_less(recipe: Recipe) -> None:
    found = memory(recipe.proto())
    assert found.saved_bytes >= 0
    pairs = zip(steps(found.in_place), steps(found.copying), strict=True)
    assert all(ours <= theirs for ours, theirs in pairs)
    mutates = [node for node in recipe.nodes if node.op_type == "CacheUpdate"]
    if len(mutates) == len(recipe.nodes) == 1:
        assert found.saved_bytes == max(each.bytes or 0 for each in found.copying.storages)


@given(recipes())
@settings(deadline=None)
def test_in_the_step_of_an_update_copying_needs_a_whole_cache_more(recipe: Recipe) -> None:
    found = memory(recipe.proto())
    sizes = {each.name: each.bytes for each in found.copying.storages if each.role is Role.COPY}
    updates = [number for number, node in enumerate(recipe.nodes) if node.op_type == "CacheUpdate"]
    assert len(sizes) == len(updates)
    for number in updates:
        size = sizes[recipe.nodes[number].output[0]]
        assert size is not None
        assert found.copying.steps[number].bytes - found.in_place.steps[number].bytes >= size
    if len(updates) == 1:  # the one copy lives on
        ours, theirs = steps(found.in_place), steps(found.copying)
        (at,) = updates
        assert [more - less for less, more in zip(ours, theirs, strict=True)] == [0] * at + [size] * (len(ours) - at)
        if max(ours) == max(ours[at:]):
            assert found.saved_bytes == size


@given(recipes())
@settings(deadline=None)
def test_buffers_are_never_shared_by_live_values_nor_with_a_class(recipe: Recipe) -> None:
    found = memory(recipe.proto())
    shared = [name for buffer in found.in_place.buffers for name in buffer.values]
    assert len(shared) == len(set(shared))
    assert not set(shared) & set(recipe.names)  # MC-PLAN-007
    simulation = Simulation(recipe, copies=False)
    for buffer in found.in_place.buffers:
        assert all(simulation.size[name] <= buffer.bytes for name in buffer.values)
        for live in simulation.live():
            assert len(live & set(buffer.values)) <= 1


@given(recipes())
@settings(deadline=None)
def test_names_do_not_matter(recipe: Recipe) -> None:
    made = recipe.proto()
    found, other = memory(made), memory(mutcache.add_prefix(made, "zz_"))
    assert steps(other.in_place) == steps(found.in_place)
    assert steps(other.copying) == steps(found.copying)
    assert [buffer.bytes for buffer in other.in_place.buffers] == [buffer.bytes for buffer in found.in_place.buffers]


@given(recipes())
@settings(deadline=None)
def test_a_random_schedule_is_planned_in_its_own_order(recipe: Recipe) -> None:
    made = mutcache.plan(decode(recipe.proto()), {}, schedule="random:7")
    assert made.memory is not None
    assert [step.node.index for step in made.memory.in_place.steps] == [step.node.index for step in made.steps]
    recipe.nodes = [recipe.nodes[step.node.index] for step in made.steps]
    assert steps(made.memory.in_place) == Simulation(recipe, copies=False).bytes()
    assert steps(made.memory.copying) == Simulation(recipe, copies=True).bytes()
