"""What callers hand over by mistake or malice: it is refused in words, or it does no harm."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import ml_dtypes
import numpy as np
import pytest

from mutcache.errors import BindError, CheckError, MutcacheError, RunError
from mutcache.executor import Binding, Session
from mutcache.proto.onnx_ml import ModelProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import initializer, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
SHAPE = (4, 2)
ROW = np.full((1, 2), 7, np.float32)


def cache_model(dims: Sequence[int | str] = ("n", 2)) -> ModelProto:
    """A cache, and the rows that it held before the update."""
    return model(
        [tensor("cache", FLOAT, dims, mutable=True), tensor("values", FLOAT, ["m", 2]), tensor("position", INT64, [])],
        [update("cache", "values", "position", "updated")],
        [tensor("updated", FLOAT, dims, alias_of="cache")],
        initializers=[initializer("weight", FLOAT, [2], bytes(8))],
    )


def cache() -> Array:
    return np.zeros(SHAPE, np.float32)


def refused_bind(array: object, made: ModelProto | None = None) -> BindError:
    with Session(made or cache_model()) as session, pytest.raises(BindError) as refused:
        session.bind({"cache": array})  # type: ignore[dict-item]  # what callers get wrong
    return refused.value


def works(array: Array) -> None:
    """A run on ``array`` writes its second row."""
    before = np.asarray(array).copy()
    with Session(cache_model()).bind({"cache": array}) as binding:
        assert binding.run({"values": ROW, "position": 1})["updated"] is array
    before[1] = ROW
    assert np.asarray(array).tobytes() == before.tobytes()


@pytest.mark.parametrize("garbage", [None, 7, b"", "model.onnx", Path("model.onnx"), {}, ValueInfoProto()])
def test_what_is_no_model(garbage: Any) -> None:
    with pytest.raises(MutcacheError, match="expected a mutcache ModelProto") as refused:
        Session(garbage)
    assert refused.value.phase is not None


@pytest.mark.parametrize("garbage", [0, "", [], np.zeros(3), [("cache", cache())]])
def test_what_is_no_mapping_of_arrays(garbage: Any) -> None:
    with pytest.raises(BindError, match="expected storage by name"):
        Session(cache_model(), initializers=garbage)
    session = Session(cache_model())
    with pytest.raises(BindError, match="expected storage by name"):
        session.bind(garbage)
    with pytest.raises(BindError, match="expected storage by name"):
        session.bind({"cache": cache()}, garbage)
    with session.bind({"cache": cache()}) as binding, pytest.raises(RunError, match="expected feeds by name"):
        binding.run(garbage)


STRUCTURED = np.dtype([("x", np.float32)])


@pytest.mark.parametrize(
    "array",
    [
        None,
        7.0,
        [[0.0, 0.0]],
        memoryview(bytearray(32)),
        np.float32(0),
        np.zeros(SHAPE, object),
        np.zeros(SHAPE, ">f4"),
        np.zeros(SHAPE, "V4"),
        np.zeros(SHAPE, STRUCTURED),
        np.zeros(SHAPE, "M8[s]"),
        np.zeros(SHAPE, "U1"),
        np.zeros(SHAPE, np.dtypes.StringDType()),
        np.zeros((4, 4), ml_dtypes.bfloat16),
        np.zeros(SHAPE, np.float32).view(np.int32),
    ],
)
def test_what_is_no_array_of_the_declared_type(array: object) -> None:
    assert refused_bind(array).requirement is Req.MC_BIND_007


def strided(strides: tuple[int, int], offset: int = 0) -> Array:
    """A writable view of SHAPE in 64 numbers."""
    base = np.zeros(64, np.float32)
    return np.lib.stride_tricks.as_strided(base[offset:], SHAPE, strides, writeable=True)


@pytest.mark.parametrize(
    "array",
    [strided((0, 4)), strided((0, 0)), strided((4, 4)), strided((-8, 4), 32), strided((12, 4)), strided((8, -4), 1)],
    ids=["one row", "one number", "overlapping rows", "backwards", "gaps", "backwards rows"],
)
def test_storage_that_overlaps_itself_or_has_gaps(array: Array) -> None:
    assert array.flags.writeable
    assert refused_bind(array).requirement is Req.MC_BIND_007


class Liar(np.ndarray[Any, np.dtype[Any]]):
    """An array that says of its memory what it likes."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (64, False)}


def test_subclasses_are_judged_by_their_memory() -> None:
    works(np.zeros(SHAPE, np.float32).view(Liar))
    works(np.zeros(SHAPE, np.float32).view(np.recarray))
    works(np.ma.masked_array(np.zeros(SHAPE, np.float32), mask=True))
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(np.zeros(SHAPE, np.float32))
    works(matrix)
    shared = np.zeros(SHAPE, np.float32)
    with Session(cache_model()).bind({"cache": shared.view(Liar)}):
        assert refused_bind(shared).requirement is Req.MC_BIND_005


def test_a_type_with_metadata_is_that_type() -> None:
    works(np.zeros(SHAPE, np.dtype(np.float32, metadata={"unit": "m"})))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cache.bin"
    path.write_bytes(bytes(32))
    return path


def test_mapped_files(file: Path) -> None:
    for mode in ("r+", "c"):
        array = np.memmap(file, np.float32, mode, shape=SHAPE)
        before = file.read_bytes()
        works(array)
        # A private mapping is memory of the process like any other; what happens to the file is the caller's choice.
        assert (file.read_bytes() == before) == (mode == "c")
    assert refused_bind(np.memmap(file, np.float32, "r", shape=SHAPE)).requirement is Req.MC_BIND_002


def test_memory_is_not_taken_away_while_it_is_bound() -> None:
    owner = np.zeros((6, 2), np.float32)
    mapping = mmap.mmap(-1, 32)
    lent = bytearray(32)
    with (
        Session(cache_model()).bind({"cache": owner[1:5]}) as one,
        Session(cache_model()).bind({"cache": np.ndarray(SHAPE, np.float32, mapping)}) as two,
        Session(cache_model()).bind({"cache": np.ndarray(SHAPE, np.float32, lent)}) as three,
    ):
        with pytest.raises(ValueError, match="cannot resize"):
            owner.resize((2**16, 2), refcheck=False)
        with pytest.raises(BufferError):
            mapping.close()
        with pytest.raises(BufferError):
            lent.clear()
        for binding in (one, two, three):
            binding.run({"values": ROW, "position": 1})
    assert owner[2].tolist() == [7, 7]
    owner.resize((7, 2), refcheck=False)
    lent.clear()


def test_outputs_and_initializers_are_not_taken_away_either() -> None:
    made = cache_model()
    made.graph.node.append(node("Neg", ["weight"], ["y"]))
    made.graph.output.append(tensor("y", FLOAT, [2]))
    weight, y, storage = np.ones(2, np.float32), np.zeros(2, np.float32), cache()
    with Session(made, initializers={"weight": weight}) as session, session.bind({"cache": storage}, {"y": y}):
        for array in (weight, y, storage):
            with pytest.raises(ValueError, match="cannot resize"):
                array.resize(2**16, refcheck=False)


def test_the_header_of_a_bound_array_may_change() -> None:
    array = cache()
    with Session(cache_model()).bind({"cache": array}) as binding:
        array.shape = (8,)  # what is bound is the memory, in the shape that it had
        binding.run({"values": ROW, "position": 3})
        with pytest.raises(RunError) as refused:
            binding.run({"values": ROW, "position": 4})
        assert refused.value.requirement is Req.MC_DENSE_003
    assert array.tolist() == [0] * 6 + [7, 7]


def test_a_cache_of_rank_0() -> None:
    made = model(
        [tensor("cache", FLOAT, [], mutable=True), tensor("values", FLOAT, []), tensor("position", INT64, [])],
        [update("cache", "values", "position", "updated", {"axis": 0})],
        [tensor("updated", FLOAT, [], alias_of="cache")],
    )
    with pytest.raises(CheckError) as refused:
        Session(made)
    assert refused.value.requirement is Req.MC_SHAPE_006


def test_huge_declared_dimensions() -> None:
    for size in (2**40, 2**62, -1):
        assert "got 4" in refused_bind(cache(), cache_model([size, 2])).message


def test_ten_thousand_updates_in_a_chain() -> None:
    made = cache_model()
    del made.graph.node[:]
    names = ["cache", *(f"cache_{n}" for n in range(9_999)), "updated"]
    made.graph.node.extend(update(old, "values", "position", new) for old, new in itertools.pairwise(names))
    for schedule in ("node-order", "random:1"):
        array = cache()
        with Session(made, schedule=schedule).bind({"cache": array}) as binding:
            binding.run({"values": ROW, "position": 3})
        assert array[3].tolist() == [7, 7]


class CallsBack(Sequence[Array]):
    """A sequence of tensors that does something else when it is read."""

    def __init__(self, binding: Binding, call: str) -> None:
        self.binding = binding
        self.call = call
        self.error: RunError | None = None

    def __len__(self) -> int:
        return 1

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | Sequence[Array]:
        raise AssertionError(f"nothing asks for item {index}")

    def __iter__(self) -> Iterator[Array]:
        if self.call == "run":
            try:
                self.binding.run({"values": ROW, "position": 0, "parts": [ROW]})
            except RunError as error:
                self.error = error
        else:
            self.binding.release()
        return iter([ROW])


def test_feeds_that_call_back() -> None:
    made = cache_model()
    parts = ValueInfoProto(name="parts")
    parts.type.sequence_type.elem_type.CopyFrom(tensor("", FLOAT, [1, 2]).type)
    made.graph.input.append(parts)
    array = cache()
    session = Session(made)
    with session.bind({"cache": array}) as binding:
        feeds = CallsBack(binding, "run")
        binding.run({"values": ROW, "position": 1, "parts": feeds})
        assert feeds.error is not None
        assert feeds.error.requirement is Req.MC_BIND_011
        assert array.tolist() == [[0, 0], [7, 7], [0, 0], [0, 0]]
        binding.run({"values": ROW, "position": 2, "parts": CallsBack(binding, "release")})
        assert array[2].tolist() == [7, 7], "a run that has begun is finished"
        with pytest.raises(RunError, match="released"):
            binding.run({"values": ROW, "position": 1, "parts": [ROW]})
    session.bind({"cache": array}).release()


def test_feeds_that_change_while_they_are_read() -> None:
    values, position, stop = np.ones((4, 2), np.float32), np.array(0), threading.Event()
    memory = np.full((8, 2), 5, np.float32)

    def disturb() -> None:
        while not stop.is_set():
            position[...] = 9
            values[...] += 1
            position[...] = 0

    thread = threading.Thread(target=disturb)
    thread.start()
    refusals = []
    with Session(cache_model()).bind({"cache": memory[2:6]}) as binding:
        for _ in range(300):
            try:
                binding.run({"values": values, "position": position})
            except RunError as error:
                refusals.append(error.requirement)
    stop.set()
    thread.join()
    assert set(refusals) <= {Req.MC_DENSE_003}, "a position of 9 is refused, or was not there when it was read"
    assert memory[[0, 1, 6, 7]].tolist() == [[5, 5]] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_the_leases_that_it_inherits() -> None:
    array = cache()
    session = Session(cache_model())
    binding = session.bind({"cache": array})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            session.bind({"cache": array})
        except BindError as error:
            binding.release()
            session.bind({"cache": array}).run({"values": ROW, "position": 0})
            status = 0 if error.requirement is Req.MC_BIND_005 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(BindError):
        session.bind({"cache": array})
    binding.run({"values": ROW, "position": 1})
    binding.release()
    assert array.tolist() == [[0, 0], [7, 7], [0, 0], [0, 0]], "the child wrote to its own copy"
