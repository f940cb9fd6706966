"""The oracle against literals worked out by hand, and against NumPy's own slicing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto import parse, serialize
from mutcache.proto.onnx_ml import AttributeProto, GraphProto, ModelProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import OPSET, aliased, model, node, tensor, update
from mutcache_conformance.oracle import OracleRefusal, cache_update, run_model

INT8, INT64 = 3, 7
Array = np.ndarray[Any, np.dtype[Any]]


def int8(*rows: list[int]) -> Array:
    return np.array(rows, np.int8)


def at(*positions: int) -> Array:
    return np.array(positions[0] if len(positions) == 1 else positions, np.int64)


# Literals


def test_rows_are_written_at_the_position() -> None:
    cache = int8([1, 2], [3, 4], [5, 6], [7, 8])
    assert cache_update(cache, int8([10, 11], [12, 13]), at(1)).tolist() == [[1, 2], [10, 11], [12, 13], [7, 8]]
    assert cache.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]], "a functional update leaves its operand alone"


def test_another_axis() -> None:
    assert cache_update(int8([1, 2, 3], [4, 5, 6]), int8([7], [8]), at(2), axis=-1).tolist() == [[1, 2, 7], [4, 5, 8]]
    assert cache_update(int8([1, 2, 3], [4, 5, 6]), int8([7, 8, 9]), at(0), axis=0).tolist() == [[7, 8, 9], [4, 5, 6]]


def test_circular_rows_wrap() -> None:
    cache = int8([1], [2], [3])
    assert cache_update(cache, int8([7], [8]), at(2), mode="circular").tolist() == [[8], [2], [7]]
    # 2**63 - 1 is 1 modulo 3.
    assert cache_update(cache, int8([7], [8]), at(2**63 - 1), mode="circular").tolist() == [[1], [7], [8]]


def test_each_row_of_the_batch_has_its_position() -> None:
    cache = np.array([[[1], [2], [3]], [[4], [5], [6]]], np.int8)
    updated = cache_update(cache, np.array([[[7]], [[8]]], np.int8), at(2, 0), batch_axis=0)
    assert updated.tolist() == [[[1], [2], [7]], [[8], [5], [6]]]


def test_nan_payloads_survive() -> None:
    bits = np.array([0x7FC1, 0xFFA5, 0x7F81, 0x8000], np.uint16)
    cache = np.zeros((2, 4), np.uint16).view(ml_dtypes.bfloat16)
    updated = cache_update(cache, bits.view(ml_dtypes.bfloat16).reshape(1, 4), at(1))
    assert updated.view(np.uint16).tolist() == [[0, 0, 0, 0], bits.tolist()]


@pytest.mark.parametrize(
    ("position", "rows", "mode", "requirement"),
    [
        (3, 2, "linear", Req.MC_DENSE_003),
        (4, 1, "linear", Req.MC_DENSE_003),
        (5, 0, "linear", Req.MC_DENSE_003),
        (2**63 - 1, 1, "linear", Req.MC_DENSE_003),
        (-1, 1, "linear", Req.MC_DENSE_004),
        (-(2**63), 0, "linear", Req.MC_DENSE_004),
        (0, 5, "circular", Req.MC_DENSE_003),
        (-1, 1, "circular", Req.MC_DENSE_004),
    ],
)
def test_what_does_not_fit_is_refused(position: int, rows: int, mode: str, requirement: Req) -> None:
    with pytest.raises(OracleRefusal) as refusal:
        cache_update(np.zeros((4, 2), np.int8), np.zeros((rows, 2), np.int8), at(position), mode=mode)
    assert refusal.value.requirement is requirement


def test_length_zero_fits_at_the_capacity() -> None:
    cache = int8([1], [2])
    assert cache_update(cache, np.zeros((0, 1), np.int8), at(2)).tolist() == [[1], [2]]
    empty = np.zeros((0, 1), np.int8)
    assert cache_update(empty, empty, at(7), mode="circular").shape == (0, 1)


@pytest.mark.parametrize(
    ("values", "position", "attributes"),
    [
        (np.zeros((1, 2, 2), np.int8), at(0), {}),
        (np.zeros((1, 3), np.int8), at(0), {}),
        (np.zeros((1, 2), np.int8), np.zeros((), np.int32), {}),
        (np.zeros((1, 2), np.int8), np.zeros((1,), np.int64), {}),
        (np.zeros((1, 2), np.int8), at(0), {"axis": 2}),
        (np.zeros((1, 2), np.int8), at(0), {"axis": -3}),
        (np.zeros((1, 2), np.int8), at(0), {"batch_axis": 1}),
        (np.zeros((1, 2), np.int8), at(0, 0, 0), {"batch_axis": 1}),
        (np.zeros((1, 2), np.int8), at(0, 0), {"batch_axis": 0}),
        (np.zeros((1, 2), np.int8), at(0, 0), {"batch_axis": 2}),
    ],
)
def test_operands_that_do_not_fit_are_refused(values: Array, position: Array, attributes: dict[str, Any]) -> None:
    with pytest.raises(OracleRefusal) as refusal:
        cache_update(np.zeros((4, 2), np.int8), values, position, **attributes)
    assert refusal.value.requirement is Req.MC_SHAPE_006


# NumPy's slicing


@given(st.data())
def test_updates_equal_slice_assignment(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    axis = data.draw(st.integers(-rank, rank - 1))
    length = data.draw(st.integers(0, shape[axis]))
    position = data.draw(st.integers(0, shape[axis] - length))
    cache = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    values = -1 - np.take(cache, range(length), axis)
    expected = cache.copy()
    expected.swapaxes(axis, 0)[position : position + length] = values.swapaxes(axis, 0)
    assert cache_update(cache, values, at(position), axis=axis).tolist() == expected.tolist()


@given(st.data())
def test_circular_updates_equal_a_roll(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(1, 6))
    length = data.draw(st.integers(0, capacity))
    position = data.draw(st.integers(0, 2**63 - 1))
    cache = np.arange(2 * capacity).reshape(capacity, 2)
    values = -1 - np.arange(2 * length).reshape(length, 2)
    turned = np.roll(cache, -(position % capacity), axis=0)
    turned[:length] = values
    expected = np.roll(turned, position % capacity, axis=0)
    assert cache_update(cache, values, at(position), mode="circular").tolist() == expected.tolist()


# Graphs


def values(number: int) -> Array:
    return np.full((2, 1), number, np.int8)


def graph(*nodes: Any, outputs: tuple[ValueInfoProto, ...] = ()) -> bytes:
    inputs = [tensor(name, INT8, [4, 1], mutable=True) for name in "ab"]
    inputs += [tensor(f"v{n}", INT8, [2, 1]) for n in (1, 2, 3)] + [tensor(f"p{n}", INT64, []) for n in (1, 2, 3)]
    return serialize(model(inputs, nodes, outputs))


def inputs(*positions: int) -> dict[str, Array]:
    caches = {name: np.zeros((4, 1), np.int8) for name in "ab"}
    rows = {f"v{n}": values(n) for n in (1, 2, 3)}
    return {**caches, **rows, **{f"p{n}": at(position) for n, position in enumerate(positions, 1)}}


def contents(history: tuple[Array, ...]) -> list[list[int]]:
    return [array.ravel().tolist() for array in history]


def test_histories_and_roots_of_a_chain() -> None:
    result = run_model(
        graph(
            node("Identity", ["a"], ["before"]),
            update("a", "v1", "p1", "a1"),
            update("a1", "v2", "p2", "a2"),
            aliased(node("Identity", ["a2"], ["a3"])),
            outputs=(
                tensor("a3", INT8, [4, 1], alias_of="a"),
                tensor("before", INT8, [4, 1]),
                tensor("b", INT8, [4, 1]),
            ),
        ),
        inputs(0, 1, 0),
    )
    assert contents(result.classes["a"]) == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 2, 2, 0]]
    assert contents(result.classes["b"]) == [[0, 0, 0, 0]]
    assert result.root_of_output == {"a3": "a", "b": "b"}
    assert result.outputs["a3"].ravel().tolist() == [1, 2, 2, 0]
    assert result.outputs["before"].ravel().tolist() == [0, 0, 0, 0]


def test_an_alias_of_an_ordinary_input_is_no_cache() -> None:
    named = aliased(node("Identity", ["v1"], ["named"]))
    result = run_model(graph(named, outputs=(tensor("named", INT8, [2, 1], alias_of="v1"),)), inputs(0, 0, 0))
    assert result.outputs["named"].ravel().tolist() == [1, 1]
    assert result.root_of_output == {}


def test_results_do_not_change_with_the_callers_memory() -> None:
    given_inputs = inputs(0, 0, 0)
    view = node("Flatten", ["b"], ["view"], {"axis": 0})
    result = run_model(graph(view, outputs=(tensor("view", INT8, [1, 4]),)), given_inputs)
    given_inputs["b"] += 9
    assert result.outputs["view"].ravel().tolist() == [0, 0, 0, 0]


def test_a_refused_chain_has_the_prefix_of_its_class() -> None:
    nodes = [update("a", "v1", "p1", "a1"), update("a1", "v2", "p2", "a2"), update("a2", "v3", "p3", "a3")]
    with pytest.raises(OracleRefusal) as refusal:
        run_model(graph(*nodes), inputs(0, 3, 0))
    assert refusal.value.requirement is Req.MC_DENSE_003
    assert contents(refusal.value.classes["a"]) == [[0, 0, 0, 0], [1, 1, 0, 0]]


def test_updates_that_do_not_wait_for_the_refused_one_may_be_there() -> None:
    nodes = [update("a", "v1", "p1", "a1"), update("b", "v2", "p2", "b1"), node("Identity", ["a1"], ["w"])]
    with pytest.raises(OracleRefusal) as refusal:
        run_model(graph(*nodes), inputs(-1, 2, 0))
    assert refusal.value.requirement is Req.MC_DENSE_004
    assert contents(refusal.value.classes["a"]) == [[0, 0, 0, 0]]
    assert contents(refusal.value.classes["b"]) == [[0, 0, 0, 0], [0, 0, 2, 2]]


def test_updates_that_need_the_result_of_the_refused_one_cannot_be_there() -> None:
    slicing = node("Split", ["a1"], ["w", "rest"], {"axis": 0, "num_outputs": 2})
    nodes = [update("a", "v1", "p1", "a1"), slicing, update("b", "w", "p2", "b1")]
    with pytest.raises(OracleRefusal) as refusal:
        run_model(graph(*nodes), inputs(3, 0, 0))
    assert contents(refusal.value.classes["b"]) == [[0, 0, 0, 0]]


def test_updates_in_branches_and_functions_are_recorded() -> None:
    def branch(position: str) -> AttributeProto:
        body = GraphProto(name="branch")
        body.node.append(update("a", "v1", position, f"inner_{position}"))
        body.output.append(tensor(f"inner_{position}", INT8, [4, 1], alias_of="a"))
        return AttributeProto(type=AttributeProto.GRAPH, g=body)

    proto = parse(graph(outputs=(tensor("a2", INT8, [4, 1], alias_of="a"),)))
    proto.graph.input.append(tensor("condition", 9, []))
    choice = proto.graph.node.add(op_type="If", input=["condition"], output=["a1"])
    for name, position in (("then_branch", "p1"), ("else_branch", "p2")):
        attribute = branch(position)
        attribute.name = name
        choice.attribute.append(attribute)
    proto.graph.node.add(op_type="Write", domain="local", input=["a1", "v2", "p3"], output=["a2"])
    _add_function(proto)
    result = run_model(serialize(proto), {**inputs(0, 1, 2), "condition": np.array(False)})
    assert contents(result.classes["a"]) == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 2, 2]]
    assert result.root_of_output == {"a2": "a"}


def _add_function(proto: ModelProto) -> None:
    proto.opset_import.add(domain="local", version=1)
    function = proto.functions.add(name="Write", domain="local", input=["cache", "rows", "start"], output=["written"])
    function.node.append(update("cache", "rows", "start", "written"))
    function.opset_import.add(domain="", version=OPSET)
    for opsets in (function.opset_import, proto.opset_import):
        opsets.add(domain=DOMAIN, version=DOMAIN_VERSION)
