"""Schedules: which orders there are, what the plan makes of one, and that results do not depend on it."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from random_models import Recipe, recipes

from mutcache.alias import analyze
from mutcache.decode import decode
from mutcache.errors import PlanError, RunError
from mutcache.executor import Session
from mutcache.plan import plan
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.schedule import execution_order, random_order
from mutcache.storage import Array
from mutcache_conformance.cases.builder import aliased, model, node, tensor, update
from mutcache_conformance.oracle import OracleRefusal, run_model

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
SEEDS = range(400)


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> list[list[int]]:
    """Successors of up to six vertices; edges go any way, but never round."""
    labels = draw(st.permutations(range(draw(st.integers(0, 6)))))
    successors: list[list[int]] = [[] for _ in labels]
    for one, other in itertools.combinations(labels, 2):
        if draw(st.booleans()):
            successors[one].append(other)
    return successors


def topological_orders(successors: list[list[int]]) -> set[tuple[int, ...]]:
    edges = [(vertex, target) for vertex, targets in enumerate(successors) for target in targets]
    return {
        order
        for order in itertools.permutations(range(len(successors)))
        if all(order.index(vertex) < order.index(target) for vertex, target in edges)
    }


@given(acyclic_graphs(), st.integers(0, 10**6))
def test_a_random_order_is_topological_and_repeatable(successors: list[list[int]], seed: int) -> None:
    order = random_order(successors, seed)
    assert tuple(order) in topological_orders(successors)
    assert random_order(successors, seed) == order


def test_every_topological_order_is_drawn() -> None:
    graphs: list[list[list[int]]] = [[[], [], [], []], [[1], [], [3], []], [[1, 2], [3], [3], [], []]]
    for successors in graphs:
        assert {tuple(random_order(successors, seed)) for seed in SEEDS} == topological_orders(successors)


def cache_model(nodes: list[NodeProto], outputs: list[ValueInfoProto]) -> ModelProto:
    return model(
        [
            tensor("cache", FLOAT, [2, 2], mutable=True),
            tensor("values", FLOAT, [1, 2]),
            tensor("position", INT64, []),
        ],
        nodes,
        outputs,
    )


UPDATED = tensor("updated", FLOAT, [2, 2], alias_of="cache")


def orders(made: ModelProto) -> set[tuple[int, ...]]:
    """All orders in which random schedules execute the nodes."""
    classes = analyze(decode(made).graph)
    return {tuple(execution_order(classes, f"random:{seed}")) for seed in SEEDS}


def test_reads_of_a_version_come_before_the_mutation_that_ends_it() -> None:
    made = cache_model(
        [
            aliased(node("Identity", ["cache"], ["same"])),  # 0
            node("Neg", ["same"], ["old"]),  # 1
            update("cache", "values", "position", "first"),  # 2
            node("Neg", ["first"], ["between"]),  # 3
            update("first", "values", "position", "updated"),  # 4
            node("Shape", ["cache"], ["size"]),  # 5: reads no contents
        ],
        [UPDATED, tensor("old", FLOAT, [2, 2]), tensor("between", FLOAT, [2, 2]), tensor("size", INT64, [2])],
    )
    chain = (0, 1, 2, 3, 4)
    assert orders(made) == {(*chain[:place], 5, *chain[place:]) for place in range(6)}


def test_updates_of_two_caches_need_not_wait_for_each_other() -> None:
    made = cache_model(
        [update("cache", "values", "position", "updated"), update("other", "values", "position", "second")], [UPDATED]
    )
    made.graph.input.append(tensor("other", FLOAT, [2, 2], mutable=True))
    assert orders(made) == {(0, 1), (1, 0)}


def test_node_order_is_the_default() -> None:
    made = cache_model([node("Neg", ["values"], ["y"]), update("cache", "values", "position", "updated")], [UPDATED])
    for made_plan in (plan(made), plan(made, schedule="node-order"), Session(made).plan):
        assert [step.node.index for step in made_plan.steps] == [0, 1]
    assert {tuple(step.node.index for step in plan(made, schedule=f"random:{seed}").steps) for seed in range(9)} == {
        (0, 1),
        (1, 0),
    }


@pytest.mark.parametrize(
    "schedule", ["", "random", "random:", "random:x", "random:-1", "random:٣", "random:1 ", "Node-Order", 7, None, b"x"]
)
def test_there_is_no_such_schedule(schedule: object) -> None:
    made = cache_model([update("cache", "values", "position", "updated")], [UPDATED])
    with pytest.raises(PlanError, match=r"there is no schedule .*random:SEED"):
        Session(made, schedule=schedule)  # type: ignore[arg-type]  # what callers get wrong


def test_what_is_copied_depends_on_the_order() -> None:
    made = cache_model(
        [
            node("Transpose", ["cache"], ["view"]),
            node("Neg", ["view"], ["y"]),
            node("Neg", ["values"], ["a"]),
            node("Neg", ["a"], ["b"]),
            update("cache", "values", "position", "updated"),
        ],
        [tensor("y", FLOAT, [2, 2])],
    )
    found = set()
    for seed in range(60):
        steps = plan(made, schedule=f"random:{seed}").steps
        order = [step.node.index for step in steps]
        copies = {name for step in steps for name in step.copies}
        is_view_used_late = order.index(4) < order.index(1)
        assert copies == ({"view"} if is_view_used_late else {"y"})
        found.add(is_view_used_late)
    assert found == {True, False}


def test_a_failing_node_is_named_in_any_order() -> None:
    made = cache_model(
        [update("cache", "values", "position", "updated"), update("other", "values", "position", "second")], [UPDATED]
    )
    made.graph.input.append(tensor("other", FLOAT, [1, 2], mutable=True))
    written = set()
    for seed in range(8):
        cache, other = np.zeros((2, 2), np.float32), np.zeros((1, 2), np.float32)
        with (
            Session(made, schedule=f"random:{seed}").bind({"cache": cache, "other": other}) as binding,
            pytest.raises(RunError, match=r"CacheUpdate \(#1\): 'position': position 1") as refused,
        ):
            binding.run({"values": np.ones((1, 2), np.float32), "position": 1})
        assert refused.value.requirement is Req.MC_DENSE_003
        assert not other.any()
        written.add(bool(cache.any()))
    assert written == {True, False}, "the first update of the other class may come before or after the failing one"


def draw_feeds(data: st.DataObject, recipe: Recipe) -> dict[str, Array]:
    """Feeds that mostly fit."""
    feeds = {}
    for name, feed in recipe.feeds.items():
        elements = st.sampled_from([0, 0, 0, 1, 1, 2]) if feed.is_position else st.integers(1, 250)
        feeds[name] = data.draw(hnp.arrays(np.int64, feed.shape, elements=elements), name).astype(feed.dtype)
    return feeds


@given(recipes(), st.data())
@settings(max_examples=150, deadline=None)
def test_results_do_not_depend_on_the_order(recipe: Recipe, data: st.DataObject) -> None:
    made, feeds = recipe.proto(), draw_feeds(data, recipe)
    size = {name: int(np.prod(shape)) for name, shape in recipe.caches.items()}
    caches = {
        name: np.arange(100, 100 + size[name]).astype(recipe.dtype).reshape(shape)
        for name, shape in recipe.caches.items()
    }
    for seed in data.draw(st.sets(st.integers(0, 10**6), min_size=3, max_size=3), "seeds"):
        arrays = {name: content.copy() for name, content in caches.items()}
        with Session(made, schedule=f"random:{seed}").bind(arrays) as binding:
            for _ in range(2):
                before = {name: array.copy() for name, array in arrays.items()}
                try:
                    wanted = run_model(serialize(made), {**before, **feeds})
                except OracleRefusal as refusal:
                    histories = refusal.classes
                    with pytest.raises(RunError):
                        binding.run(feeds)
                    for name, array in arrays.items():
                        assert array.tobytes() in [np.asarray(content).tobytes() for content in histories[name]]
                    break
                outputs = binding.run(feeds)
                for name, array in arrays.items():
                    assert array.tobytes() == np.asarray(wanted.classes[name][-1]).tobytes()
                for name, expected in wanted.outputs.items():
                    assert outputs[name].tobytes() == np.asarray(expected).tobytes(), name
