"""Device arrays that lie, move, break or fail: a clear refusal, no lease left behind, and nothing half-written."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernel_cases import Array, host, needs_compiler
from paged_models import (
    INT8_PAGE,
    INT64,
    PAGE,
    container,
    gather,
    identity,
    paged_model,
    paged_update,
    rows,
    scalar,
    table,
)
from test_device_pages import contents, feeds, on_device, page
from test_kernel_backend import device_array, model, session

import mutcache
from mutcache import BindError, Page, PageTable, RunError, Session
from mutcache.errors import MutcacheError
from mutcache.leases import LEASES, Use
from mutcache.proto.onnx_ml import TensorProto, ValueInfoProto
from mutcache.quantization.declaration import WIDTHS
from mutcache.requirements import Req
from mutcache.storage import dtype_of, is_device_array, storage_of
from mutcache_conformance.cases import builder
from mutcache_cupy.backend import KernelBackend
from mutcache_cupy.device_view import DeviceView, Place
from mutcache_cupy.page_records import PageRecords

pytestmark = needs_compiler
SHAPE = (2, 4, 3)


class Liar:
    """An array of another library, whose interface says whatever a test wants, or nothing any more."""

    def __init__(self, array: Array, **told: Any) -> None:
        self.array = device_array(array)
        self.told = told
        self.is_broken = False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.is_broken:
            raise RuntimeError("the memory is gone")
        return {**self.array.__cuda_array_interface__, **self.told}


def named(array: Array, *, told: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """A liar with attributes of its own."""
    return type("Named", (Liar,), attributes)(array, **(told or {}))


def mutable_claims() -> list[str]:
    gc.collect()
    return [claim.name for claims in LEASES.held().values() for claim in claims if claim.use is not Use.INITIALIZER]


def zeros(dtype: Any = np.float32) -> Array:
    return np.zeros(SHAPE, dtype)


INTERFACES: dict[str, Any] = {
    "negative size": lambda: Liar(zeros(), shape=(-2, 4, 3)),
    "size that is no integer": lambda: Liar(zeros(), shape=(2.0, 4, 3)),
    "more than there are addresses": lambda: Liar(zeros(), shape=(2**62, 4, 3)),
    "address that is no integer": lambda: Liar(zeros(), data=(16.5, False)),
    "address below 0": lambda: Liar(zeros(), data=(-16, False)),
    "strides that are no integers": lambda: Liar(zeros(), strides=(48.0, 12.0, 4.0)),
    "too few strides": lambda: Liar(zeros(), strides=()),
    "mask": lambda: Liar(zeros(), mask=1),
    "no type": lambda: Liar(zeros(), typestr="zz"),
    "other byte order": lambda: Liar(zeros(), typestr=">f4"),
    "objects": lambda: Liar(zeros(np.float64), typestr="|O"),
    "wider elements than there are": lambda: named(zeros(np.float16), dtype=np.dtype(np.float32)),
    "elements of another type": lambda: named(zeros(np.int32), dtype=np.dtype(np.float32)),
    "broken": lambda: broken(zeros()),
    "another device": lambda: named(zeros(), device=SimpleNamespace(id=1)),
}


def broken(array: Array) -> Liar:
    made = Liar(array)
    made.is_broken = True
    return made


@pytest.mark.parametrize("name", INTERFACES)
def test_an_interface_that_is_not_sound(name: str) -> None:
    before = mutable_claims()
    with session(model()) as one:
        with pytest.raises(BindError) as caught:
            one.bind({"cache": INTERFACES[name]()})
        assert caught.value.requirement is Req.MC_BIND_007
        with one.bind({"cache": device_array(zeros())}) as binding, pytest.raises(RunError):
            binding.run({"values": INTERFACES[name](), "position": 0})
    with pytest.raises(BindError):
        session(model_with_initializer(), initializers={"values": INTERFACES[name]()})
    assert mutable_claims() == before


def model_with_initializer() -> Any:
    made = model()
    made.graph.initializer.append(builder.initializer("values", TensorProto.FLOAT, SHAPE, zeros().tobytes()))
    return made


@pytest.mark.parametrize(
    "array",
    [
        Liar(zeros(), shape=tuple(np.array(SHAPE))),
        named(zeros(), dtype=None),
        named(zeros(), dtype="a type of its own"),
        named(zeros(), device="cuda:0"),
        named(zeros(), device=0),
    ],
    ids=["sizes of NumPy", "no dtype", "own dtype", "device as text", "device as a number"],
)
def test_an_interface_that_is_sound_after_all(array: Any) -> None:
    with session(model()) as one, one.bind({"cache": array}) as binding:
        binding.run({"values": np.ones((2, 1, 3), np.float32), "position": 1})
    assert array.array.get().sum() == 6


def test_mc_bind_009_an_array_that_moves_or_breaks_while_it_is_bound() -> None:
    other = device_array(zeros())
    ways: tuple[Callable[[Liar], None], ...] = (
        lambda array: setattr(array, "is_broken", True),
        lambda array: setattr(array, "array", other),
    )
    for spoil in ways:
        cache, total = Liar(zeros()), Liar(np.zeros((), np.float32))
        bound = cache.array
        outputs: Any = {"sum": total}
        with session(model(reads=True)) as one, one.bind({"cache": cache}, outputs) as binding:
            run = {"values": np.ones((2, 1, 3), np.float32), "position": 1}
            spoil(total)
            with pytest.raises(RunError) as caught:
                binding.run(run)
            assert caught.value.requirement is Req.MC_BIND_009
            assert caught.value.values["completed"] == ("main: CacheUpdate (#0)",)
            spoil(cache)
            with pytest.raises(RunError) as caught:
                binding.run(run | {"position": 3})
            assert caught.value.requirement is Req.MC_BIND_009
            assert not bound.get()[:, 3].any()
        assert not other.get().any()
        payload = Liar(np.zeros(64, np.uint8))
        with session(paged_model()) as one, one.bind({"cache": table([Page(INT8_PAGE, PAGE, payload)])}) as binding:
            spoil(payload)
            with pytest.raises(RunError) as caught:
                binding.run(feeds(quantized_type=INT8_PAGE))
            assert caught.value.requirement is Req.MC_BIND_009


class Moving(Liar):
    """Says another address from some reading on."""

    def __init__(self, array: Array, other: Any, after: int) -> None:
        super().__init__(array)
        self.other = other
        self.left = after

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.left -= 1
        return dict((self.array if self.left >= 0 else self.other).__cuda_array_interface__)


@pytest.mark.parametrize("after", range(1, 12))
def test_what_is_leased_is_what_is_written_whenever_an_array_moves(after: int) -> None:
    other = device_array(zeros())
    cache = Moving(zeros(), other, after)
    with session(model()) as one, one.bind({"cache": cache}) as binding:
        (claim,) = [
            claim
            for claims in LEASES.held().values()
            for claim in claims
            if claim.name == "cache" and claim.use is Use.MUTABLE
        ]
        with suppress(RunError):  # where it has moved already
            binding.run({"values": np.ones((2, 1, 3), np.float32), "position": 1})
        for array in (cache.array, other):
            assert not array.get().any() or storage_of(array).byte_range == claim.byte_range


class Flaky(Liar):
    """Breaks at some reading."""

    def __init__(self, array: Array, at: int) -> None:
        super().__init__(array)
        self.left = at

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("flaky")
        return dict(self.array.__cuda_array_interface__)


@pytest.mark.parametrize("at", range(12))
def test_a_payload_of_an_allocator_that_breaks(at: int) -> None:
    made = table([], allocator=lambda nbytes: Flaky(np.zeros(nbytes, np.uint8), at))
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        with suppress(RunError):  # where it breaks too early
            binding.run(feeds(quantized_type=INT8_PAGE))
        claims = [name for name in mutable_claims() if name.startswith("cache[")]
        assert claims == [f"cache[{page_id}]" for page_id in made]


def test_a_launch_or_an_upload_that_fails_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise error

    cache, made = device_array(zeros()), table([page(INT8_PAGE)])
    before = contents(made)
    with (
        session(model(reads=True)) as one,
        one.bind({"cache": cache}) as dense,
        session(paged_model()) as other,
        other.bind({"cache": made}) as paged,
    ):
        for error, method in ((MemoryError("no memory"), "upload"), (RuntimeError("cudaErrorLaunchFailure"), "launch")):
            monkeypatch.setattr(host(), method, fail)
            with pytest.raises(RunError, match=str(error)) as caught:
                dense.run({"values": np.ones((2, 1, 3), np.float32), "position": 1})
            assert caught.value.values["where"] == ("main",)
            for quantized_type, page_id in ((INT8_PAGE, 0), (INT8_PAGE, 1), (0, 0)):
                with pytest.raises(RunError):
                    paged.run(feeds(page_id=page_id, quantized_type=quantized_type))
            monkeypatch.undo()
            assert contents(made) == before
            assert sorted(name for name in mutable_claims() if "[" in name) == ["cache[0]"]
        dense.run({"values": np.ones((2, 1, 3), np.float32), "position": 1})
        paged.run(feeds(quantized_type=INT8_PAGE))


@pytest.mark.parametrize("elem_type", WIDTHS, ids=TensorProto.DataType.Name)
def test_identity_pages_of_every_type_are_those_of_the_host(elem_type: int) -> None:
    made = builder.model(
        [
            container("cache", elem_type, (2, 4, 8), (0,), mutable=True),
            scalar("page_id"),
            builder.tensor("values", elem_type, (2, "r", 8)),
            scalar("position"),
            builder.tensor("ids", INT64, ["n"]),
        ],
        [paged_update("cache", "updated"), gather("updated", "pages", axis=1)],
        [
            container("updated", elem_type, (2, 4, 8), (0,), alias_of="cache"),
            builder.tensor("pages", elem_type, (2, "all", 8)),
        ],
    )
    made.quantizations.append(identity(elem_type))
    values = (np.arange(32) % 2).reshape(2, 2, 8).astype(dtype_of(elem_type))
    found: list[Any] = []
    for one in (Session(made), session(made)):
        pages = table([], made)
        with one, one.bind({"cache": pages}) as binding:
            for page_id, position in ((0, 1), (1, 2), (0, 2)):
                fed = values if page_id else device_array(values) if found else values
                outputs = binding.run({"page_id": page_id, "position": position, "values": fed, "ids": np.array([0])})
        found.append((contents(pages), outputs["pages"].tobytes(), outputs["pages"].dtype))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("nodes", "output"),
    [
        ([builder.node("SequenceAt", ["s", "zero"], ["y"])], builder.tensor("y", TensorProto.FLOAT, [None, None])),
        (
            [builder.node("ConcatFromSequence", ["s"], ["y"], {"axis": 0})],
            builder.tensor("y", TensorProto.FLOAT, [None, None]),
        ),
    ],
    ids=["at", "concat"],
)
def test_a_sequence_of_device_arrays(nodes: Any, output: Any) -> None:
    sequence = ValueInfoProto(name="s")
    sequence.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    made = builder.model([sequence, scalar("zero")], nodes, [output])
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)]
    with Session(made) as plain, session(made) as one:
        expected = plain.run({"s": arrays, "zero": 0})["y"]
        for fed in (
            [device_array(array) for array in arrays],
            [Liar(array) for array in arrays],
            [arrays[0], Liar(arrays[1])],
        ):
            np.testing.assert_array_equal(one.run({"s": fed, "zero": 0})["y"], expected)
        with pytest.raises(RunError) as caught:
            plain.run({"s": [device_array(array) for array in arrays], "zero": 0})
        assert caught.value.requirement is Req.MC_BIND_007


def test_payloads_that_cannot_be_read_from_the_host() -> None:
    made = table([Page(INT8_PAGE, PAGE, Liar(np.ones(64, np.uint8)))])
    for read in (lambda: made.decode(0), made.copy, lambda: mutcache.page_table_to_proto(made)):
        with pytest.raises(BindError, match=r"has no get\(\)") as caught:
            read()
        assert caught.value.requirement is Req.MC_BIND_007
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        binding.run(feeds(quantized_type=INT8_PAGE))
    assert made[0].payload.array.get()[8:32].tolist() == [1] * 24


def test_a_copy_of_a_table_is_the_hosts() -> None:
    made = table([page(INT8_PAGE, 1)], allocator=lambda nbytes: on_device(np.zeros(nbytes, np.uint8)))
    copied = made.copy()
    with Session(paged_model()) as one, one.bind({"cache": copied}) as binding:
        binding.run(feeds(page_id=1, quantized_type=INT8_PAGE))
    assert not any(is_device_array(one.payload) for one in copied.values())
    assert len(made) == 1


def test_a_view_has_a_header_that_nobody_changes_and_is_not_copied() -> None:
    view: Any = device_array(zeros())
    for name, value in (("shape", (24,)), ("dtype", np.dtype(np.int32)), ("device", Place(1))):
        with pytest.raises(AttributeError):
            setattr(view, name, value)
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"get\(\) copies"):
            act(view)
    with pytest.raises(TypeError, match="no elements of type object"):
        DeviceView(view, storage_of(view).address, np.dtype(object), (2,), None, Place(0), host().read)


@pytest.mark.parametrize(
    ("pages", "requirement"),
    [
        ({-1: lambda: page(INT8_PAGE)}, Req.MC_PAGED_014),
        ({0: lambda: Page(INT8_PAGE, PAGE, on_device(np.zeros(1, np.uint8)))}, Req.MC_PAGED_007),
        ({0: lambda: Page(9, PAGE, on_device(np.zeros(64, np.uint8)))}, Req.MC_PAGED_006),
        ({0: lambda: Page(-1, PAGE, on_device(np.zeros(64, np.uint8)))}, Req.MC_PAGED_006),
    ],
    ids=["negative number", "short payload", "no such type", "negative type"],
)
def test_page_records_judge_pages_as_a_run_does(pages: dict[int, Any], requirement: Req) -> None:
    made = PageTable({number: one() for number, one in pages.items()}, model=paged_model(is_map=True), value="cache")
    with pytest.raises(MutcacheError) as caught:
        PageRecords(host(), made, 8)
    assert caught.value.requirement is requirement


def test_page_records_of_another_device_or_of_no_capacity() -> None:
    payload = named(np.zeros(64, np.uint8), device=SimpleNamespace(id=1))
    with pytest.raises(ValueError, match="is on cuda:1, the records on"):
        PageRecords(host(), table([Page(INT8_PAGE, PAGE, payload)]), 8)
    with pytest.raises(ValueError, match="a capacity of -1 is negative"):
        PageRecords(host(), table([]), -1)


def test_sessions_of_several_threads_share_a_device() -> None:
    backend = KernelBackend(host())
    wrong: list[str] = []

    def work(seed: int) -> None:
        with Session(paged_model(), backend=backend) as one, Session(paged_model()) as plain:
            moved, kept = table([]), table([])
            with one.bind({"cache": moved}) as first, plain.bind({"cache": kept}) as second:
                for turn in range(12):
                    fed = feeds(turn // 4, turn % 4, INT8_PAGE) | {"values": rows(1, seed + turn)}
                    first.run(fed)
                    second.run(fed)
            if contents(moved) != contents(kept):
                wrong.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
