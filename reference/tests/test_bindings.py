"""Binding storage and outputs, supplying initializers, and how bindings end."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from seed_example import refusal, seed_arrays, seed_model

from mutcache.errors import BindError, RunError
from mutcache.executor import Session
from mutcache.leases import LEASES, Use
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import initializer, model, node, tensor, update

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def test_symbols_of_several_caches_agree() -> None:
    made = model(
        [tensor(name, FLOAT, ["n", 2], mutable=True) for name in ("keys", "cells")],
        [],
        [tensor("keys", FLOAT, ["n", 2])],
    )
    with pytest.raises(BindError, match="'cells': dimension 0: 'n' is 3, got 4") as refused:
        Session(made).bind({"keys": np.zeros((3, 2), np.float32), "cells": np.zeros((4, 2), np.float32)})
    assert refusal(refused) is Req.MC_BIND_007


def test_a_mutable_input_is_never_an_ordinary_value() -> None:
    cache, values = seed_arrays()
    before = cache.tobytes()
    with Session(seed_model()) as session:
        feeds = {"values": values, "position": 0}
        for call in (
            lambda: session.run({"cache": cache, **feeds}),
            lambda: session.run(feeds),
            lambda: session.bind({"cache": cache}).run({"cache": cache, **feeds}),
            lambda: session.bind({}),
        ):
            with pytest.raises((BindError, RunError)) as refused:
                call()
            assert refusal(refused) is Req.MC_BIND_001
    assert cache.tobytes() == before


def test_only_mutable_inputs_are_bound() -> None:
    cache, values = seed_arrays()
    with Session(seed_model()) as session:
        for mutable, problem in (
            ({"cache": cache, "values": values}, "'values' is no READ_WRITE input"),
            ({"cache": cache, "nothing": values}, "'nothing' is no READ_WRITE input"),
            ([cache], "expected storage by name"),
        ):
            with pytest.raises(BindError, match=problem):
                session.bind(mutable)  # type: ignore[arg-type]


def test_an_aliased_output_is_bound_to_its_own_storage_only() -> None:
    cache, values = seed_arrays()
    with Session(seed_model()) as session:
        for other in (cache.copy(), np.zeros_like(cache)):
            with pytest.raises(BindError) as refused:
                session.bind({"cache": cache}, {"updated_cache": other})
            assert refusal(refused) is Req.MC_BIND_008
        with session.bind({"cache": cache}, {"updated_cache": cache[:]}) as binding:
            assert binding.run({"values": values, "position": 0})["updated_cache"] is cache


def output_model() -> ModelProto:
    return model(
        [
            tensor("cache", FLOAT, ["n", 2], mutable=True),
            tensor("values", FLOAT, ["m", 2]),
            tensor("position", INT64, []),
        ],
        [
            update("cache", "values", "position", "updated"),
            node("Neg", ["values"], ["y"]),
            node("Shape", ["updated"], ["size"]),
        ],
        [
            tensor("updated", FLOAT, ["n", 2], alias_of="cache"),
            tensor("y", FLOAT, ["m", 2]),
            tensor("size", INT64, [2]),
        ],
    )


def test_outputs_are_written_into_bound_arrays() -> None:
    cache, values, y = np.zeros((4, 2), np.float32), np.ones((1, 2), np.float32), np.zeros((1, 2), np.float32)
    with Session(output_model()) as session, session.bind({"cache": cache}, {"y": y}) as binding:
        outputs = binding.run({"values": values, "position": 0})
        assert list(outputs) == ["updated", "y", "size"]
        assert outputs["updated"] is cache
        assert outputs["y"] is y
        np.testing.assert_array_equal(y, -values)
        with pytest.raises(RunError, match=r"output 'y' is float32\[2, 2\], the array bound to it float32\[1, 2\]"):
            binding.run({"values": np.ones((2, 2), np.float32), "position": 0})
        with pytest.raises(RunError, match=r"input 'values'.* overlaps 'y'"):
            binding.run({"values": y, "position": 0})


@pytest.mark.parametrize(
    ("outputs", "requirement"),
    [
        ({"y": np.zeros((4, 2), np.float32)[::2]}, Req.MC_BIND_013),
        ({"y": np.zeros((2, 2))}, Req.MC_BIND_013),
        ({"y": np.zeros((2, 3), np.float32)}, Req.MC_BIND_013),
        ({"y": np.frombuffer(bytes(16), np.float32).reshape(2, 2)}, Req.MC_BIND_013),
        ({"nothing": np.zeros((2, 2), np.float32)}, None),
    ],
)
def test_arrays_that_cannot_take_an_output(outputs: dict[str, Array], requirement: Req | None) -> None:
    with pytest.raises(BindError) as refused:
        Session(output_model()).bind({"cache": np.zeros((4, 2), np.float32)}, outputs)
    assert refusal(refused) is requirement


def test_outputs_do_not_overlap_caches_or_each_other() -> None:
    memory = np.zeros((6, 2), np.float32)
    session = Session(output_model())
    overlapping: list[dict[str, Array]] = [
        {"y": memory[3:4]},
        {"y": memory[4:5], "size": memory[4:6].reshape(-1).view(np.int64)[:2]},
    ]
    for outputs in overlapping:
        with pytest.raises(BindError) as refused:
            session.bind({"cache": memory[:4]}, outputs)
        assert refusal(refused) is Req.MC_BIND_004
    session.bind({"cache": memory[:4]}, {"y": memory[4:5]}).release()


def test_initializers_that_the_caller_supplies() -> None:
    made = model(
        [tensor("cache", FLOAT, [4], mutable=True), tensor("position", INT64, [])],
        [update("cache", "weight", "position", "updated", {"axis": 0})],
        [tensor("updated", FLOAT, [4], alias_of="cache")],
        initializers=[initializer("weight", FLOAT, [2], bytes(8))],
    )
    memory = np.arange(8, dtype=np.float32)
    with Session(made, initializers={"weight": memory[:2]}) as session:
        other = Session(made)
        for one in (session, other):
            for overlapping in (memory[:4], memory[1:5]):
                with pytest.raises(BindError, match="initializer 'weight'") as refused:
                    one.bind({"cache": overlapping})
                assert refusal(refused) is Req.MC_BIND_003
        with session.bind({"cache": memory[4:]}) as binding:
            binding.run({"position": 1})
            with pytest.raises(BindError) as refused:
                Session(made, initializers={"weight": memory[4:6]})
            assert refusal(refused) is Req.MC_BIND_012
    np.testing.assert_array_equal(memory, [0, 1, 2, 3, 4, 0, 1, 7])
    other.bind({"cache": memory[:4]}).release()  # the session is closed: nothing holds the initializer any more


def plain_model() -> ModelProto:
    return model(
        [tensor("x", FLOAT, [2])],
        [node("Add", ["x", "offset"], ["sum"])],
        [tensor("sum", FLOAT, [2])],
        initializers=[initializer("offset", FLOAT, [2], bytes(8))],
    )


@pytest.mark.parametrize(
    ("initializers", "problem"),
    [
        ({"nothing": np.zeros(2, np.float32)}, "no initializer 'nothing'"),
        ({"offset": np.zeros(2)}, "is float32\\[2\\], got float64\\[2\\]"),
        ({"offset": np.zeros(3, np.float32)}, "got float32\\[3\\]"),
        ({"offset": [0.0, 0.0]}, "got list"),
        ([np.zeros(2, np.float32)], "got list"),
    ],
)
def test_initializers_that_are_not_as_declared(initializers: Any, problem: str) -> None:
    with pytest.raises(BindError, match=problem):
        Session(plain_model(), initializers=initializers)


def test_life_of_a_binding() -> None:
    cache, values = seed_arrays()
    feeds: Mapping[str, object] = {"values": values, "position": 0}
    session = Session(seed_model())
    binding = session.bind({"cache": cache})
    with pytest.raises(BindError) as refused:
        session.bind({"cache": cache})
    assert refusal(refused) is Req.MC_BIND_005
    binding.release()
    binding.release()
    with pytest.raises(RunError, match="released"):
        binding.run(feeds)
    second = session.bind({"cache": cache})
    session.close()
    session.close()
    with pytest.raises(RunError, match="released"):
        second.run(feeds)
    with pytest.raises(BindError, match="closed"):
        session.bind({"cache": cache})
    Session(seed_model()).bind({"cache": cache}).release()


def test_a_bind_that_fails_halfway_takes_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    cache, _ = seed_arrays()
    session = Session(seed_model())
    with monkeypatch.context() as patched:
        patched.setattr("mutcache.executor.instantiate", fail)
        with pytest.raises(MemoryError):
            session.bind({"cache": cache})
        assert not any(claim.use is Use.MUTABLE for claims in LEASES.held().values() for claim in claims)
    session.bind({"cache": cache}).release()


def test_a_closed_session_does_not_run() -> None:
    session = Session(plain_model())
    session.close()
    with pytest.raises(RunError, match="released"):
        session.run({"x": np.zeros(2, np.float32)})


def test_a_forgotten_binding_gives_its_storage_back() -> None:
    cache, _ = seed_arrays()
    session = Session(seed_model())
    session.bind({"cache": cache})
    gc.collect()
    session.bind({"cache": cache}).release()
    kept = session.bind({"cache": cache})
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    with pytest.raises(BindError):
        Session(seed_model()).bind({"cache": cache})
    kept.release()


def test_a_binding_outlives_the_name_of_its_session() -> None:
    cache, values = seed_arrays()
    binding = Session(seed_model()).bind({"cache": cache})
    gc.collect()
    binding.run({"values": values, "position": 0})
    assert cache[..., :3, :].tobytes() == values.tobytes()
    binding.release()


def test_runs_of_one_binding_follow_one_another() -> None:
    made = model(
        [tensor("cache", INT64, [64], mutable=True), tensor("one", INT64, [1]), tensor("zero", INT64, [])],
        [
            node("Slice", ["cache", "start", "stop"], ["old"]),
            node("Add", ["old", "one"], ["new"]),
            update("cache", "new", "zero", "updated", {"axis": 0}),
        ],
        [tensor("updated", INT64, [64], alias_of="cache")],
        initializers=[
            initializer("start", INT64, [1], np.array([0]).tobytes()),
            initializer("stop", INT64, [1], np.array([64]).tobytes()),
        ],
    )
    cache = np.zeros(64, np.int64)
    with Session(made).bind({"cache": cache}) as binding:
        feeds = {"one": np.ones(1, np.int64), "zero": 0}
        threads = [threading.Thread(target=lambda: [binding.run(feeds) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cache.tolist() == [200] * 64, "no increment is lost"
