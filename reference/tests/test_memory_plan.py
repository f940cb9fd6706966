"""The memory plan (MC-PLAN-003, MC-PLAN-007): peaks computed by hand, and what no plan can be made of."""

from __future__ import annotations

import flow_models as flow
import numpy as np
import pytest

import mutcache
from mutcache.memory_plan import MemoryPlan, Role, ScopeMemory
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def memory(made: ModelProto, **dims: int) -> MemoryPlan:
    found = mutcache.plan(made, dims).memory
    assert found is not None
    return found


def peaks(scope: ScopeMemory) -> dict[str, int]:
    return {each.path: each.peak_bytes for each in scope.walk()}


def one_cache(nodes: list[NodeProto], outputs: list[ValueInfoProto]) -> ModelProto:
    """A cache of 64 x 4 floats (1024 bytes), values of 2 x 4 (32 bytes) and a position (8 bytes)."""
    inputs = [tensor("cache", FLOAT, [64, 4], mutable=True), tensor("values", FLOAT, [2, 4]), tensor("p", INT64, [])]
    return model(inputs, nodes, outputs)


def seed() -> ModelProto:
    shape: list[int | str] = [2, "batch", "heads", "max_length", "head_size"]
    return model(
        [
            tensor("cache", FLOAT16, shape, mutable=True),
            tensor("values", FLOAT16, [2, "batch", "heads", "new_length", "head_size"]),
            tensor("position", INT64, []),
        ],
        [update("cache", "values", "position", "updated_cache")],
        [tensor("updated_cache", FLOAT16, shape, alias_of="cache")],
    )


SEED = {"batch": 1, "heads": 32, "max_length": 4096, "head_size": 128, "new_length": 16}


def test_the_example_of_the_proposal() -> None:
    found = memory(seed(), **SEED)
    cache, values = 2 * 32 * 4096 * 128 * 2, 2 * 32 * 16 * 128 * 2
    assert (found.cache_bytes, found.input_bytes) == (cache, values + 8)
    assert found.peak_bytes == cache + values + 8  # an update is no byte of cache
    assert found.copying_peak_bytes == 2 * cache + values + 8
    assert found.saved_bytes == cache
    assert found.in_place.storages == ()
    assert [(each.name, each.role, each.bytes) for each in found.copying.storages] == [
        ("updated_cache", Role.COPY, cache)
    ]


def test_without_sizes_there_is_a_plan_but_no_memory() -> None:
    assert mutcache.plan(seed()).memory is None


def test_a_chain_copies_once_for_each_update() -> None:
    chain = [update("cache", "values", "p", "u1"), update("u1", "values", "p", "u2"), update("u2", "values", "p", "u3")]
    found = memory(one_cache(chain, [tensor("u3", FLOAT, [64, 4], alias_of="cache")]))
    assert found.in_place.peak_bytes == 0
    # The caller's cache is not among them; a version goes when the next one is made.
    assert [step.bytes for step in found.copying.steps] == [1024, 2048, 2048]


def test_what_the_caller_sees_in_place_a_copy_must_hand_out() -> None:
    nodes = [update("cache", "values", "p", "unread"), node("Neg", ["values"], ["y"])]
    found = memory(one_cache(nodes, [tensor("y", FLOAT, [2, 4])]))
    assert [step.bytes for step in found.in_place.steps] == [0, 32]
    assert [step.bytes for step in found.copying.steps] == [1024, 1024 + 32]


def test_a_pass_through_costs_nothing_in_either_plan() -> None:
    nodes = [aliased(node("Identity", ["cache"], ["same"])), update("same", "values", "p", "u")]
    found = memory(one_cache(nodes, [tensor("u", FLOAT, [64, 4], alias_of="cache")]))
    assert [step.bytes for step in found.in_place.steps] == [0, 0]
    assert [step.bytes for step in found.copying.steps] == [0, 1024]


def test_values_are_live_from_their_node_to_their_last_use() -> None:
    nodes = [
        node("Neg", ["cache"], ["old"]),  # 1024
        node("Neg", ["values"], ["a"]),  # 32
        node("ReduceMax", ["old"], ["top"], {"keepdims": 0}),  # 4, the last use of "old"
        update("cache", "a", "p", "u"),
        node("Add", ["a", "top"], ["y"]),  # 32
    ]
    found = memory(one_cache(nodes, [tensor("y", FLOAT, [2, 4]), tensor("u", FLOAT, [64, 4], alias_of="cache")]))
    assert [step.bytes for step in found.in_place.steps] == [1024, 1056, 1060, 36, 68]
    assert [step.bytes for step in found.copying.steps] == [1024, 1056, 1060, 1060, 1092]
    assert (found.in_place.peak_step, found.copying.peak_step) == (2, 4)
    assert found.peak_bytes == 1024 + 40 + 1060


def test_an_intermediate_storage_with_several_names_counts_once() -> None:
    nodes = [
        node("Neg", ["cache"], ["a"]),
        aliased(node("Identity", ["a"], ["b"])),
        node("Neg", ["b"], ["y"]),
        update("cache", "values", "p", "u"),
    ]
    found = memory(one_cache(nodes, [tensor("y", FLOAT, [64, 4])]))
    assert [step.bytes for step in found.in_place.steps] == [1024, 1024, 2048, 1024]
    assert found.in_place.storages[0].names == ("a", "b")


def test_buffers_never_hold_a_cache_or_an_output() -> None:
    nodes = [
        node("Neg", ["cache"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Neg", ["b"], ["c"]),
        node("Neg", ["c"], ["y"]),
        update("cache", "values", "p", "u"),
    ]
    found = memory(one_cache(nodes, [tensor("y", FLOAT, [64, 4])]))
    assert [(buffer.bytes, buffer.values) for buffer in found.in_place.buffers] == [(1024, ("a", "c")), (1024, ("b",))]


def test_initializers_and_constants_stand_apart() -> None:
    made = one_cache(
        [node("Add", ["values", "w"], ["v"]), update("cache", "v", "p", "u")],
        [tensor("u", FLOAT, [64, 4], alias_of="cache")],
    )
    made.graph.initializer.append(initializer("w", FLOAT, [4], bytes(16)))
    assert memory(made).initializer_bytes == 16
    assert memory(made).in_place.peak_bytes == 32


def test_the_output_of_a_constant_node_is_no_value_of_a_run() -> None:
    constant = node("Constant", [], ["w"])
    constant.attribute.add(name="value", type=AttributeProto.TENSOR, t=initializer("", FLOAT, [4], bytes(16)))
    nodes = [constant, node("Add", ["values", "w"], ["v"]), update("cache", "v", "p", "u")]
    found = memory(one_cache(nodes, [tensor("u", FLOAT, [64, 4], alias_of="cache")]))
    assert found.initializer_bytes == 16
    assert [step.bytes for step in found.in_place.steps] == [0, 32, 32]


# Control flow and functions. Caches and "x" have 8 x 4 floats (128 bytes), "r" 2 x 4.


def test_a_branch_that_updates() -> None:
    chosen = flow.branch(
        ["b"],
        flow.body([flow.updated("c", "u1")], flow.value("u1", alias_of="c")),
        flow.body([flow.passed("c", "k1")], flow.value("k1", alias_of="c")),
    )
    found = memory(flow.graph([chosen], flow.value("b", alias_of="c")))
    assert list(peaks(found.in_place).values()) == [0, 0, 0]
    # The version of the branch becomes the output of the If: it is not counted twice.
    assert list(peaks(found.copying).values()) == [128, 128, 0]


def test_the_body_with_the_higher_peak_counts_at_its_node() -> None:
    chosen = flow.branch(
        ["b"],
        flow.body([flow.negated("x", "n1"), flow.negated("n1", "n2"), flow.negated("n2", "n3")], flow.value("n3")),
        flow.body([flow.negated("x", "k1")], flow.value("k1")),
    )
    found = memory(
        flow.graph([flow.negated("x", "a"), chosen, flow.negated("a", "y")], flow.value("b"), flow.value("y"))
    )
    assert list(peaks(found.in_place).values()) == [128 + 256, 256, 128]
    assert [step.bytes for step in found.in_place.steps] == [128, 128 + 256, 384]


def test_what_a_body_captures_is_live_while_it_runs() -> None:
    chosen = flow.branch(
        ["b"],
        flow.body([flow.negated("a", "n1")], flow.value("n1")),
        flow.body([flow.negated("x", "k1")], flow.value("k1")),
    )
    nodes = [flow.negated("x", "a"), flow.updated("c", "u"), chosen, flow.negated("b", "y")]
    found = memory(flow.graph(nodes, flow.value("y")))
    assert [step.bytes for step in found.in_place.steps] == [128, 128, 256, 256]


def test_a_loop_counts_its_body_once_with_what_it_carries() -> None:
    loop = flow.loop(
        ["c", "a"],
        ["d", "e"],
        [flow.updated("fc", "n1"), flow.negated("fv", "n2")],
        flow.value("n1", alias_of="fc"),
        flow.value("n2"),
        formals=[flow.value("fc", mutable=True), flow.value("fv")],
    )
    found = memory(flow.graph([flow.negated("x", "a"), loop], flow.value("d", alias_of="c"), flow.value("e")))
    # Two conditions of a byte: the one that comes in is needed by the first node only. Nobody uses the counter.
    assert [step.bytes for step in found.in_place.steps[1].bodies["body"].steps] == [8 + 1 + 1 + 128, 1 + 128, 1 + 256]
    assert found.in_place.peak_bytes == 128 + 257
    # Copying, an iteration has the cache that comes in and the one that it makes.
    assert [step.bytes for step in found.copying.steps[1].bodies["body"].steps] == [266, 1 + 128 + 256, 1 + 256 + 128]
    assert found.copying.peak_bytes == 128 + 385


def test_what_a_loop_collects_counts_in_full_while_it_runs() -> None:
    loop = flow.loop([], ["all"], [flow.negated("x", "n")], flow.value("n"), formals=[])
    found = memory(flow.graph([loop, flow.updated("c", "u")], tensor("all", FLOAT, [None, 8, 4])), m=5)
    assert found.in_place.storages[0].bytes == 5 * 128
    assert found.in_place.steps[0].bytes == 5 * 128 + 128 + 1  # an iteration's value, and its condition
    assert found.unknown == ()


def test_a_loop_whose_trips_nobody_knows_is_a_lower_bound() -> None:
    loop = flow.loop([], ["all"], [flow.negated("x", "n")], flow.value("n"), formals=[])
    found = memory(flow.graph([loop, flow.updated("c", "u")], tensor("all", FLOAT, [None, 8, 4])))
    assert found.unknown == ("main: all",)


def test_a_scan() -> None:
    scan = flow.scan(
        ["c"],
        ["d", "all"],
        [flow.updated("fc", "n1"), flow.negated("slice", "n2")],
        flow.value("n1", alias_of="fc"),
        flow.value("n2"),
        formals=[flow.value("fc", mutable=True)],
    )
    found = memory(flow.graph([scan], flow.value("d", alias_of="c"), tensor("all", FLOAT, [None, 8, 4])))
    assert found.in_place.steps[0].bytes == 3 * 128 + 256  # three slices of 128 bytes, and slice and result of one
    assert found.copying.steps[0].bytes == 3 * 128 + 3 * 128


def test_a_function_counts_at_every_call_with_the_sizes_of_that_call() -> None:
    twice = flow.function("twice", ["t"], ["t2"], [flow.negated("t", "t1"), flow.negated("t1", "t2")])
    nodes = [flow.call("twice", ["x"], ["a"]), flow.call("twice", ["r"], ["b"]), flow.updated("c", "u")]
    found = memory(flow.graph(nodes, flow.value("a"), tensor("b", FLOAT, [2, 4]), functions=[twice]))
    assert [step.bytes for step in found.in_place.steps] == [256, 128 + 64, 160]


def test_an_update_inside_a_function() -> None:
    step = flow.function(
        "step",
        ["f", "r", "p"],
        ["g"],
        [flow.negated("r", "n"), update("f", "n", "p", "g")],
        flow.value("f", mutable=True),
        flow.value("g", alias_of="f"),
    )
    made = flow.graph([flow.call("step", ["c", "r", "p"], ["y"])], flow.value("y", alias_of="c"), functions=[step])
    found = memory(made)
    assert peaks(found.in_place) == {"main": 32, "local::step": 32}
    assert peaks(found.copying) == {"main": 160, "local::step": 160}


# Sizes.


def sliced() -> ModelProto:
    """Reads the valid part of a cache, as converted decoders do."""
    made = one_cache(
        [
            node("Unsqueeze", ["p", "zero"], ["end"]),
            node("Slice", ["cache", "zero", "end", "zero"], ["valid"]),
            update("cache", "values", "p", "u"),
        ],
        [tensor("valid", FLOAT, [None, 4])],
    )
    made.graph.initializer.append(initializer("zero", INT64, [1], np.array([0]).tobytes()))
    return made


def test_a_size_that_depends_on_the_value_of_an_input() -> None:
    assert memory(sliced(), p=10).in_place.peak_bytes == 8 + 10 * 16
    found = memory(sliced())
    assert found.unknown == ("main: valid",)
    assert found.in_place.peak_bytes == 8


def test_every_missing_dimension_is_named() -> None:
    with pytest.raises(mutcache.PlanError, match="'heads', 'head_size', 'new_length'") as refused:
        mutcache.plan(seed(), {"batch": 1, "max_length": 8})
    assert refused.value.hint == "--dim heads=N --dim head_size=N --dim new_length=N"
    assert refused.value.values["missing"] == ("heads", "head_size", "new_length")


def test_a_size_that_another_name_of_the_class_knows_is_not_missing() -> None:
    made = seed()
    made.graph.output[0].type.tensor_type.shape.dim[3].dim_value = 4096
    sizes = {name: size for name, size in SEED.items() if name != "max_length"}
    assert memory(made, **sizes).peak_bytes == memory(seed(), **SEED).peak_bytes
    with pytest.raises(mutcache.PlanError, match=r"'max_length' cannot be 8.*says 4096"):
        mutcache.plan(made, {**sizes, "max_length": 8})


@pytest.mark.parametrize("size", [-1, 1 << 63, 2.0, True, "4", None])
def test_sizes_that_are_none(size: object) -> None:
    with pytest.raises(mutcache.PlanError, match="dimension 'heads' cannot be"):
        mutcache.plan(seed(), {**SEED, "heads": size})  # type: ignore[dict-item]  # what callers get wrong


def test_a_dimension_that_the_model_has_not() -> None:
    with pytest.raises(mutcache.PlanError, match="no dimension 'head'") as refused:
        mutcache.plan(seed(), {**SEED, "head": 1})
    assert "heads" in refused.value.hint


def test_more_memory_than_there_is() -> None:
    with pytest.raises(mutcache.PlanError, match="more than any machine addresses"):
        mutcache.plan(seed(), {**SEED, "heads": 1 << 40, "head_size": 1 << 20})


def test_updates_that_cannot_fit() -> None:
    with pytest.raises(mutcache.PlanError, match="length 16 > capacity 8") as refused:
        mutcache.plan(seed(), {**SEED, "max_length": 8})
    assert refused.value.requirement is mutcache.Req.MC_SHAPE_005
    with pytest.raises(mutcache.PlanError, match=r"position 4090 \+ length 16 > capacity 4096"):
        mutcache.plan(seed(), {**SEED, "position": 4090})


def test_dimensions_that_do_not_fit_together() -> None:
    made = model(
        [tensor("c", FLOAT, [4, 2], mutable=True), tensor("a", FLOAT, [2, "n"]), tensor("b", FLOAT, ["m", 2]),
         tensor("r", FLOAT, [1, 2]), tensor("p", INT64, [])],
        [node("MatMul", ["a", "b"], ["y"]), update("c", "r", "p", "u")],
        [tensor("y", FLOAT, [2, 2])],
    )  # fmt: skip
    assert memory(made, n=3, m=3).in_place.peak_bytes == 16
    with pytest.raises(mutcache.PlanError, match=r"MatMul.*cannot run with these sizes"):
        mutcache.plan(made, {"n": 3, "m": 4})


def test_a_cache_of_unknown_size_has_no_plan() -> None:
    made = one_cache([update("cache", "values", "p", "u")], [tensor("u", FLOAT, [None, 4], alias_of="cache")])
    made.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    with pytest.raises(mutcache.PlanError, match="the size of the READ_WRITE input 'cache' is unknown"):
        mutcache.plan(made, {})


def test_an_empty_graph() -> None:
    made = model([tensor("c", FLOAT, [4], mutable=True)], [], [tensor("c", FLOAT, [4])])
    assert memory(made).peak_bytes == memory(made).copying_peak_bytes == 16
