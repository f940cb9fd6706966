"""Operands, outputs and initializers of sessions on a device: wherever the caller has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flow_runs import FEEDS, cache_names, fresh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import Array, host, needs_compiler
from sound_models import SoundModel, sound_models
from test_kernel_backend import device_array, model, session

from mutcache import BindError, RunError, Session
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import initializer
from mutcache_conformance.oracle import run_model

pytestmark = needs_compiler


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(sound_models(), st.data())
def test_random_sound_models_run_on_a_device_as_the_oracle_says(sound: SoundModel, data: st.DataObject) -> None:
    """Through branches, loops, scans and functions, whichever feeds are on the device."""
    made = sound.model
    moved = data.draw(st.sets(st.sampled_from(sorted(FEEDS[0]))))
    before = fresh(made)
    caches = {name: device_array(array) for name, array in before.items()}
    with session(made) as one, one.bind(caches) as binding:
        for feeds in FEEDS:
            wanted = run_model(serialize(made), {**before, **feeds})
            fed = {name: device_array(array) if name in moved else array for name, array in feeds.items()}
            outputs = binding.run(fed)
            for name in cache_names(made):
                before[name] = caches[name].get()
                np.testing.assert_array_equal(before[name], wanted.classes[name][-1], err_msg=name)
            for name, expected in wanted.outputs.items():
                if name in wanted.root_of_output:
                    assert outputs[name] is caches[wanted.root_of_output[name]]
                elif name in sound.root_of and sound.root_of[name] in feeds:
                    assert outputs[name] is fed[sound.root_of[name]]
                else:
                    np.testing.assert_array_equal(outputs[name], expected, err_msg=name)


def test_operands_on_the_device_are_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    device = host()
    cache, values = device_array(np.zeros((2, 4, 3), np.float32)), device_array(np.ones((2, 2, 3), np.float32))
    position = device_array(np.array(2, np.int64))
    uploads: list[int] = []
    upload = device.upload

    def counted(array: Array) -> Array:
        uploads.append(array.nbytes)
        return upload(array)

    with session(model()) as one, one.bind({"cache": cache}) as binding:
        monkeypatch.setattr(device, "upload", counted)
        binding.run({"values": values, "position": position})
        assert cache.get()[:, 2:].all()
        assert not cache.get()[:, :2].any()
        device.write(position, np.array(3, np.int64))
        with pytest.raises(RunError) as caught:
            binding.run({"values": values, "position": position})
        assert caught.value.requirement is Req.MC_DENSE_003
    assert sum(uploads) < 512  # the table of one transfer, and nothing of the operands


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda: device_array(np.ones((2, 1, 3), np.float16)), "declared element type float32, got float16"),
        (lambda: device_array(np.ones((2, 1, 4), np.float32)), "'d' is 3, got 4"),
        (lambda: host().view(host().empty(64), 2, np.dtype(np.float32), (2, 1, 3)), "not aligned to 4"),
        (lambda: host().view(host().empty(64), 0, np.dtype(np.float32), (2, 1, 3), (16, 16, 4)), "not contiguous"),
        (lambda: Foreign(np.ones((2, 1, 3), np.float32), 1), "it is on cuda:1, the session reads arrays on cpu and cu"),
        (lambda: Foreign(np.ones((2, 1, 3), np.float32), None), "no sound __cuda_array_interface__"),
    ],
)
def test_a_feed_on_the_device_that_kernels_cannot_read(values: Any, message: str) -> None:
    cache = device_array(np.zeros((2, 4, 3), np.float32))
    with session(model()) as one, one.bind({"cache": cache}) as binding:
        with pytest.raises(RunError, match=message):
            binding.run({"values": values(), "position": 0})
        view = host().view(cache, 12, np.dtype(np.float32), (2, 1, 3))
        with pytest.raises(RunError, match=r"'values'.*overlaps 'cache'") as caught:
            binding.run({"values": view, "position": 0})
        assert caught.value.requirement is Req.MC_BIND_004
    assert not cache.get().any()
    with Session(model()) as one, one.bind({"cache": np.zeros((2, 4, 3), np.float32)}) as binding:
        with pytest.raises(RunError, match="the session reads arrays on cpu") as caught:
            binding.run({"values": device_array(np.ones((2, 1, 3), np.float32)), "position": 0})
        assert caught.value.requirement is Req.MC_BIND_007


class Foreign:
    """An array of another library: it has the interface and the number of its device, and nothing else."""

    def __init__(self, array: Array, number: int | None = 0) -> None:
        self._array = device_array(array)
        self._is_sound = number is not None
        self.device = SimpleNamespace(index=number)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._is_sound:
            raise AttributeError("not on a device after all")
        return dict(self._array.__cuda_array_interface__)

    def elements(self) -> Array:
        return np.asarray(self._array.get())


def test_arrays_of_other_libraries_are_lent_and_fed() -> None:
    cache, values = Foreign(np.zeros((2, 4, 3), np.float32)), Foreign(np.ones((2, 1, 3), np.float32))
    with session(model(reads=True)) as one, one.bind({"cache": cache}) as binding:
        outputs = binding.run({"values": values, "position": 1})
        assert outputs["updated"] is cache
        assert outputs["sum"] == 6
    assert cache.elements().sum() == 6


def test_outputs_can_be_bound_on_either_side() -> None:
    cache, values = device_array(np.zeros((2, 4, 3), np.float32)), np.ones((2, 2, 3), np.float32)
    for buffer in (np.zeros((), np.float32), device_array(np.zeros((), np.float32)), Foreign(np.zeros((), np.float32))):
        outputs: Any = {"sum": buffer, "updated": cache}
        with session(model(reads=True)) as one, one.bind({"cache": cache}, outputs) as binding:
            assert binding.run({"values": values, "position": 0})["sum"] is buffer
        found = (
            buffer.elements()
            if isinstance(buffer, Foreign)
            else buffer
            if isinstance(buffer, np.ndarray)
            else buffer.get()
        )
        assert found == 12
    with (
        Session(model(reads=True)) as one,
        pytest.raises(BindError, match="it is on cuda:0, the session needs it on cpu"),
    ):
        one.bind({"cache": np.zeros((2, 4, 3), np.float32)}, {"sum": device_array(np.zeros((), np.float32))})
    inside = host().view(cache, 4, np.dtype(np.float32), ())
    with session(model(reads=True)) as one, pytest.raises(BindError) as caught:
        one.bind({"cache": cache}, {"sum": inside})
    assert caught.value.requirement is Req.MC_BIND_004


def with_initializer(*, reads: bool = False) -> Any:
    """The model, with ones for values."""
    made = model(reads=reads)
    made.graph.initializer.append(
        initializer("values", TensorProto.FLOAT, (2, 1, 3), np.ones((2, 1, 3), np.float32).tobytes())
    )
    return made


def test_initializers_on_the_device() -> None:
    made = with_initializer(reads=True)
    cache = device_array(np.zeros((2, 4, 3), np.float32))
    weights = device_array(np.full((2, 1, 3), 3, np.float32))
    with session(made, initializers={"values": weights}) as one:
        with one.bind({"cache": cache}) as binding:
            assert binding.run({"position": 1})["sum"] == 18
            assert binding.run({"position": 2, "values": np.zeros((2, 1, 3), np.float32)})["sum"] == 18
        for offset in (0, 20):
            inside = host().view(weights, offset, np.dtype(np.float32), (1, 1, 1))
            with session(model()) as other, pytest.raises(BindError) as caught:
                other.bind({"cache": inside})
            assert caught.value.requirement is Req.MC_BIND_003
    with session(made) as one, one.bind({"cache": weights}) as binding:
        with pytest.raises(BindError) as caught:
            session(made, initializers={"values": host().view(weights, 0, np.dtype(np.float32), (2, 1, 3))})
        assert caught.value.requirement is Req.MC_BIND_012
        binding.run({"position": 0})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda: device_array(np.ones((2, 1, 3), np.float16)), r"got float16\[2, 1, 3\]"),
        (lambda: device_array(np.ones((2, 1, 4), np.float32)), r"got float32\[2, 1, 4\]"),
        (lambda: Foreign(np.ones((2, 1, 3), np.float32), 1), "is on cuda:1"),
        (lambda: host().view(host().empty(64), 0, np.dtype(np.float32), (2, 1, 3), (24, 24, 8)), "strides"),
    ],
)
def test_an_initializer_on_the_device_that_cannot_be_used(weights: Any, message: str) -> None:
    with pytest.raises(BindError, match=message):
        session(with_initializer(), initializers={"values": weights()})
    with pytest.raises(BindError, match="is on cuda"):
        Session(with_initializer(), initializers={"values": weights()})
