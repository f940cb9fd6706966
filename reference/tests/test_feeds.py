"""Ordinary inputs of a run: what is taken, and what a caller is told when it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seed_example import refusal, seed_arrays, seed_model

from mutcache.errors import RunError
from mutcache.executor import Session
from mutcache.proto.onnx_ml import ModelProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import initializer, model, node, tensor, update

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


@pytest.mark.parametrize("number", [7, np.int64(7), np.int32(7), np.array(7)])
def test_scalars_may_be_plain_numbers(number: object) -> None:
    made = model([tensor("x", INT64, [])], [node("Neg", ["x"], ["y"])], [tensor("y", INT64, [])])
    outputs = Session(made).run({"x": number})
    assert outputs["y"] == -7
    assert outputs["y"].dtype == np.int64


@pytest.mark.parametrize(
    ("element_type", "number"),
    [
        (INT64, 7.5),
        (INT64, 7.0 + 1e-9),
        (INT64, 2**63),
        (INT64, True),
        (INT64, "7"),
        (INT64, 1j),
        (TensorProto.UINT8, -1),
        (TensorProto.INT4, 9),
        (TensorProto.BOOL, 1),
        (FLOAT, 0.1),
        (FLOAT, 1e300),
        (FLOAT16, 70000),
        (TensorProto.BFLOAT16, 257),
        (TensorProto.STRING, 1),
    ],
)
def test_a_number_that_the_type_does_not_hold_is_refused(element_type: int, number: object) -> None:
    made = model([tensor("x", element_type, [])], [node("Identity", ["x"], ["y"])], [tensor("y", element_type, [])])
    with pytest.raises(RunError, match="'x'"):
        Session(made).run({"x": number})


@pytest.mark.parametrize(
    ("element_type", "number"),
    [
        (FLOAT, 0.5),
        (FLOAT, 3),
        (FLOAT, float("nan")),
        (FLOAT, float("-inf")),
        (INT64, 7.0),
        (TensorProto.BOOL, True),
        (TensorProto.BFLOAT16, 256),
        (TensorProto.UINT64, 2**64 - 1),
        (TensorProto.COMPLEX64, 1j),
        (TensorProto.STRING, "text"),
    ],
)
def test_a_number_that_the_type_holds_is_taken(element_type: int, number: Any) -> None:
    made = model([tensor("x", element_type, [])], [node("Identity", ["x"], ["y"])], [tensor("y", element_type, [])])
    result = Session(made).run({"x": number})["y"].item()
    assert result == number or (result != result and number != number)


def feed_model() -> ModelProto:
    return model(
        [tensor("x", FLOAT, ["n", 2]), tensor("y", FLOAT, ["n"]), tensor("offset", FLOAT, [2])],
        [node("Add", ["x", "offset"], ["sum"]), node("Neg", ["y"], ["minus"])],
        [tensor("sum", FLOAT, ["n", 2]), tensor("minus", FLOAT, ["n"])],
        initializers=[initializer("offset", FLOAT, [2], np.array([1, 2], np.float32).tobytes())],
    )


X, Y = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("feeds", "problem", "requirement"),
    [
        ({"x": X}, "input 'y' is missing", None),
        ({"x": X, "y": Y, "z": Y}, "no ordinary input of the model is named 'z'", None),
        ({"x": X, "y": Y, 3: Y}, "named 3", None),
        ({"x": X.astype(np.float64), "y": Y}, "input 'x': declared element type float32, got float64", None),
        ({"x": X.astype(">f4"), "y": Y}, "got >f4", None),
        ({"x": X[:, :1], "y": Y}, "dimension 1: declared 2, got 1", Req.MC_SHAPE_003),
        ({"x": X, "y": Y[:2]}, "input 'y': dimension 0: 'n' is 3, got 2", Req.MC_SHAPE_003),
        ({"x": X[0], "y": Y}, "declared rank 2", None),
        ({"x": [[0.0, 0.0]], "y": Y}, "got list", None),
        ({"x": 1.0, "y": Y}, "got float", None),
        ({"x": None, "y": Y}, "got NoneType", None),
        ([X, Y], "expected feeds by name, got list", None),
    ],
)
def test_feeds_that_are_not_as_declared(feeds: Any, problem: str, requirement: Req | None) -> None:
    with Session(feed_model()) as session, pytest.raises(RunError) as refused:
        session.run(feeds)
    assert problem in str(refused.value)
    assert refusal(refused) is requirement


def test_defaults_may_be_overridden_in_each_run() -> None:
    with Session(feed_model()) as session:
        for offset, feeds in (([1, 2], {}), ([5, 5], {"offset": np.full(2, 5, np.float32)}), ([1, 2], {})):
            np.testing.assert_array_equal(
                session.run({"x": X, "y": Y, **feeds})["sum"], X + np.array(offset, np.float32)
            )
        outputs = session.run({"x": X[:1], "y": Y[:1]})
        assert outputs["sum"].shape == (1, 2)


def test_feeds_may_be_any_view_or_subclass() -> None:
    class Subclass(np.ndarray[Any, np.dtype[np.float32]]):
        pass

    x = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2].T
    with Session(feed_model()) as session:
        outputs = session.run({"x": x.view(Subclass), "y": Y[::-1]})
    np.testing.assert_array_equal(outputs["sum"], x + np.array([1, 2], np.float32))
    assert type(outputs["sum"]) is np.ndarray


def test_symbols_of_the_binding_bind_the_feeds() -> None:
    cache, values = seed_arrays()
    with Session(seed_model()).bind({"cache": cache}) as binding:
        wrong = np.concatenate([values, values], axis=2)
        with pytest.raises(RunError, match="dimension 2: 'heads' is 2, got 4"):
            binding.run({"values": wrong, "position": 0})
        binding.run({"values": values, "position": 0})
        binding.run({"values": values[..., :1, :], "position": 0})


@pytest.mark.parametrize(
    ("feeds", "requirement"),
    [
        ({"values": np.zeros((2, 1, 2, 3, 4), np.float32)}, Req.MC_SHAPE_006),
        ({"values": np.zeros((2, 1, 2, 3), np.float16)}, Req.MC_SHAPE_006),
        ({"values": np.zeros((3, 1, 2, 3, 4), np.float16)}, Req.MC_SHAPE_003),
        ({"values": np.zeros((2, 1, 3, 3, 4), np.float16)}, Req.MC_SHAPE_003),
        ({"values": [1.0]}, Req.MC_SHAPE_006),
        ({"position": np.array([0])}, Req.MC_SHAPE_006),
        ({"position": np.array(0, np.int32)}, Req.MC_SHAPE_006),
        ({"position": np.array(0, ">i8")}, Req.MC_SHAPE_006),
        ({"position": np.array(0, "m8[s]")}, Req.MC_SHAPE_006),
        ({"position": True}, Req.MC_SHAPE_006),
        ({"position": 0.5}, Req.MC_SHAPE_006),
        ({"position": 10**30}, Req.MC_SHAPE_006),
        ({"position": "0"}, Req.MC_SHAPE_006),
        ({"position": None}, Req.MC_SHAPE_006),
        ({"position": [0]}, Req.MC_SHAPE_006),
    ],
)
def test_operands_of_an_update_that_are_not_as_declared(feeds: dict[str, object], requirement: Req) -> None:
    cache, values = seed_arrays()
    before = cache.tobytes()
    with Session(seed_model()).bind({"cache": cache}) as binding:
        with pytest.raises(RunError) as refused:
            binding.run({"values": values, "position": 0} | feeds)
        assert refusal(refused) is requirement
        assert cache.tobytes() == before
        binding.run({"values": values, "position": 0})


@pytest.mark.parametrize("inside", ["values", "position"])
def test_feeds_inside_the_cache_are_refused(inside: str) -> None:
    made = model(
        [tensor("cache", INT64, [8], mutable=True), tensor("values", INT64, ["n"]), tensor("position", INT64, [])],
        [update("cache", "values", "position", "updated", {"axis": 0})],
        [tensor("updated", INT64, [8], alias_of="cache")],
    )
    for cache in (np.zeros(8, np.int64), np.frombuffer(bytearray(64), np.int64), np.zeros(16, np.int64)[8:]):
        feeds: dict[str, object] = {"values": np.ones(2, np.int64), "position": np.array(0)}
        with Session(made).bind({"cache": cache}) as binding:
            for part in (cache, cache[6:], cache[::-3]) if inside == "values" else (cache[3:4].reshape(()),):
                with pytest.raises(RunError, match=f"input '{inside}'.* overlaps 'cache'") as refused:
                    binding.run(feeds | {inside: part})
                assert refusal(refused) is Req.MC_BIND_004
                assert not cache.any()
            empty = {"values": cache[2:2]}
            binding.run(feeds | empty)
            binding.run(feeds)
            assert cache.sum() == 2


def test_sequences_as_feeds_and_outputs() -> None:
    value = ValueInfoProto(name="parts")
    value.type.sequence_type.elem_type.CopyFrom(tensor("", FLOAT, ["n"]).type)
    result = ValueInfoProto()
    result.CopyFrom(value)
    result.name = "more"
    made = model(
        [value, tensor("x", FLOAT, ["n"]), tensor("cache", FLOAT, [4], mutable=True)],
        [node("SequenceInsert", ["parts", "x"], ["more"])],
        [result],
    )
    x, cache = np.ones(2, np.float32), np.zeros(4, np.float32)
    with Session(made).bind({"cache": cache}) as binding:
        outputs = binding.run({"parts": [x + 1], "x": x})
        assert [part.tolist() for part in outputs["more"]] == [[2, 2], [1, 1]]
        outputs["more"][1][0] = 9
        assert x[0] == 1
        for feeds, problem in (
            ({"parts": x, "x": x}, "declared a sequence"),
            ({"parts": [x, x.astype(int)], "x": x}, "input 'parts\\[...\\]': declared element type"),
            ({"parts": [cache[:2]], "x": x}, "overlaps 'cache'"),
            ({"x": x}, "'parts' is missing"),
        ):
            with pytest.raises(RunError, match=problem):
                binding.run(feeds)
