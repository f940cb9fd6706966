"""Page tables, payloads and allocators as nobody should write them: each gets an error that says what is wrong."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest
from paged_models import (
    FLOAT,
    IDENTITY,
    INT8_PAGE,
    PAGE,
    ZERO,
    container,
    gather,
    gather_model,
    identity_page,
    int8_page,
    paged_model,
    paged_update,
    rows,
    scalar,
    table,
    with_types,
)

from mutcache import BindError, DecodeError, MutcacheError, Page, PageTable, RunError, Session, check_model
from mutcache.leases import LEASES
from mutcache.lending import Lending
from mutcache.page_protos import page_table_from_proto, page_table_to_proto
from mutcache.proto.onnx_data import SequenceProto
from mutcache.proto.onnx_ml import ModelProto
from mutcache.quantization import PageShapeError, decode, decode_rows, parse_declaration
from mutcache.requirements import Req
from mutcache.storage import Array, storage_of
from mutcache_conformance.cases.builder import model, tensor


def feeds(**changes: Any) -> dict[str, Any]:
    return {"page_id": 0, "values": rows(1), "position": 0, "quantized_type": IDENTITY} | changes


class Liar(np.ndarray[Any, Any]):
    """An array whose every method fails, over memory that is as good as any."""

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("not to be asked")

    __getitem__ = __setitem__ = __array_function__ = __array_ufunc__ = _fail
    reshape = tobytes = copy = view = _fail
    flags = nbytes = size = property(_fail)

    def __array_finalize__(self, source: Any) -> None:
        """Do nothing."""


def liar(n_bytes: int) -> Array:
    return np.zeros(n_bytes, np.uint8).view(Liar)


class OnDevice:
    """What an array of a device looks like."""

    dtype = np.dtype(np.uint8)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (256,), "typestr": "|u1", "data": (4096, False), "version": 3}


class Broken:
    """A device array that answers nothing."""

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise RuntimeError("no device")


# Models and payloads.


@pytest.mark.parametrize("garbage", [None, b"", "model", 5, onnx.ModelProto()])
def test_a_table_needs_a_model_of_this_package(garbage: Any) -> None:
    with pytest.raises(BindError, match="needs the model"):
        PageTable([], model=garbage, value="cache")


@pytest.mark.parametrize("payload", [OnDevice(), Broken(), None, 5, bytes(256), memoryview(bytes(256))])
def test_a_payload_is_an_array_of_the_host(payload: Any) -> None:
    page = Page(IDENTITY, PAGE, payload)
    with pytest.raises(BindError) as refused:  # what is on a device is an array, but not for a session of the host
        Session(paged_model()).bind({"cache": table([page])})
    assert refused.value.requirement is Req.MC_BIND_007
    with pytest.raises(RunError) as failed:
        Session(gather_model()).run({"cache": [page], "ids": np.array([0])})
    assert failed.value.requirement is Req.MC_BIND_007


def test_subclasses_of_arrays_are_judged_and_read_by_their_memory() -> None:
    made = table([Page(IDENTITY, PAGE, liar(256))], allocator=liar)
    with Session(paged_model()).bind({"cache": made}) as binding:
        binding.run(feeds())
        binding.run(feeds(page_id=1))  # created in what the allocator gives
        binding.run(feeds(page_id=0, quantized_type=INT8_PAGE))  # replaced by it
    assert made.nbytes == 64 + 256
    expected = ZERO.copy()
    expected[:, :1] = rows(1)
    for page_id in made:
        np.testing.assert_array_equal(made.decode(page_id), expected)
        np.testing.assert_array_equal(made.copy().decode(page_id), expected)
    assert [len(page.raw_data) for page in page_table_to_proto(made).quantized_tensor_values] == [64, 256]  # type: ignore[union-attr]  # a sequence
    gathered = Session(gather_model()).run({"cache": made, "ids": np.array([1])})["pages"]
    np.testing.assert_array_equal(gathered, expected)


def test_a_masked_payload_hides_nothing() -> None:
    bytes_ = np.frombuffer(rows(4).tobytes(), np.uint8)
    masked = np.ma.masked_array(bytes_, mask=True)
    np.testing.assert_array_equal(table([Page(IDENTITY, PAGE, masked)]).decode(0), rows(4))


# What no page is.

NO_PAGES: dict[str, tuple[Page, Req]] = {
    "a type beyond INT64": (Page(1 << 70, PAGE, np.zeros(64, np.uint8)), Req.MC_PAGED_006),
    "a type counted from the end": (Page(-3, PAGE, np.zeros(64, np.uint8)), Req.MC_PAGED_006),
    "a boolean type": (Page(True, PAGE, np.zeros(64, np.uint8)), Req.MC_PAGED_006),
    "dims beyond INT64": (Page(INT8_PAGE, (1 << 63, 0, 8), np.zeros(0, np.uint8)), Req.MC_PAGED_007),
    "no dims": (Page(INT8_PAGE, None, np.zeros(64, np.uint8)), Req.MC_PAGED_007),  # type: ignore[arg-type]
    "dims of text": (Page(INT8_PAGE, "248", np.zeros(64, np.uint8)), Req.MC_PAGED_007),  # type: ignore[arg-type]
    "dims of floats": (Page(INT8_PAGE, (2, 4, 8.0), np.zeros(64, np.uint8)), Req.MC_PAGED_007),  # type: ignore[arg-type]
    "n_bytes beyond INT64": (Page(INT8_PAGE, PAGE, np.zeros(64, np.uint8), 1 << 70), Req.MC_PAGED_007),
    "n_bytes a float": (Page(INT8_PAGE, PAGE, np.zeros(64, np.uint8), 64.0), Req.MC_PAGED_007),  # type: ignore[arg-type]
    "n_bytes of text": (Page(INT8_PAGE, PAGE, np.zeros(64, np.uint8), "64"), Req.MC_PAGED_007),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", NO_PAGES)
@pytest.mark.parametrize(
    "use",
    [
        lambda made, bad: Session(made).bind({"cache": bad}),
        lambda _, bad: bad.decode(0),
        lambda _, bad: page_table_to_proto(bad),
    ],
    ids=["bound", "decoded", "saved"],
)
def test_what_is_no_page_is_of_no_use(use: Callable[[ModelProto, PageTable], object], what: str) -> None:
    page, requirement = NO_PAGES[what]
    made = paged_model(dims=None)
    with pytest.raises(BindError) as refused:
        use(made, table([page], made))
    assert refused.value.requirement is requirement
    assert "page 0 of 'cache'" in refused.value.message


def test_a_page_id_beyond_int64_is_not_saved() -> None:
    made = paged_model(is_map=True)
    with pytest.raises(BindError) as refused:
        page_table_to_proto(table({1 << 63: identity_page(ZERO)}, made))
    assert refused.value.requirement is Req.MC_PAGED_014


@pytest.mark.parametrize("dims", [(1 << 62, 0, 8), (1,) * 65])
def test_dims_that_numpy_has_not(dims: tuple[int, ...]) -> None:
    made = paged_model(dims=None)
    declaration = parse_declaration(made.quantizations[INT8_PAGE])
    payload = np.zeros(0 if 0 in dims else 1, np.uint8)
    for use in (
        lambda: decode(payload, declaration, dims),
        lambda: decode_rows(payload, declaration, dims, 1, 0, dims[1]),
        lambda: table([Page(INT8_PAGE, dims, payload)], made).decode(0),
    ):
        with pytest.raises(PageShapeError, match="NumPy has no arrays"):
            use()


# Allocators.


@pytest.mark.parametrize(
    "allocator",
    [
        5,
        lambda _: OnDevice(),
        lambda _: Broken(),
        lambda n_bytes: np.zeros(n_bytes, np.uint8)[::-1],
        lambda n_bytes: np.broadcast_to(np.uint8(0), n_bytes),
        lambda n_bytes: np.zeros((1, n_bytes), np.uint8),
        lambda n_bytes: np.frombuffer(bytes(n_bytes), np.uint8),
    ],
    ids=["number", "device", "broken device", "backwards", "broadcast", "rank 2", "read-only"],
)
def test_an_allocator_that_returns_something_else_is_a_refusal(allocator: Any) -> None:
    made = table([int8_page(rows(4))], allocator=allocator)
    before = dict(made), made[0].payload.tobytes()
    with Session(paged_model()).bind({"cache": made}) as binding:
        gc.collect()  # sessions that earlier tests left behind
        held = list(filter(None, LEASES.held().values()))
        for changes in ({"page_id": 1}, {"quantized_type": IDENTITY}):
            with pytest.raises(RunError) as failed:
                binding.run(feeds(**changes))
            assert failed.value.requirement is Req.MC_PAGED_012
            assert (dict(made), made[0].payload.tobytes()) == before
        assert list(filter(None, LEASES.held().values())) == held


def test_an_allocator_must_not_return_what_is_fed() -> None:
    memory = np.zeros(256, np.uint8)
    values = memory[:64].view(np.float32).reshape(2, 1, 8).view(Liar)
    made = table(allocator=lambda _: memory)
    with Session(paged_model()).bind({"cache": made}) as binding:
        with pytest.raises(RunError, match="an input of the run occupies") as failed:
            binding.run(feeds(values=values))
        assert failed.value.requirement is Req.MC_PAGED_012
        binding.run(feeds())


# Feeds and payloads.


def test_a_feed_in_a_payload_is_found_wherever_the_payload_is() -> None:
    """Payloads that were bound, created and replaced; those that a table has no more may be fed."""
    memory = np.zeros(1024, np.uint8)
    start = -memory.ctypes.data % 64
    given = iter((memory[start + 512 : start + 768], memory[start : start + 64]))
    first = Page(IDENTITY, PAGE, memory[start + 256 : start + 512])
    made = table([first], allocator=lambda _: next(given))

    def values(at: int) -> Array:
        return memory[start + at : start + at + 64].view(np.float32).reshape(2, 1, 8)

    with Session(paged_model()).bind({"cache": made}) as binding:
        binding.run(feeds(page_id=1))
        for at, page_id in ((192 + 4, 0), (256, 0), (448, 0), (508, 1), (512, 1), (704, 1), (764, 1)):
            with pytest.raises(RunError, match=rf"cache\[{page_id}\]") as failed:
                binding.run(feeds(values=values(at)))
            assert failed.value.requirement is Req.MC_BIND_004
        binding.run(feeds(values=values(192)))
        binding.run(feeds(values=values(768)))
        binding.run(feeds(quantized_type=INT8_PAGE))  # page 0 is in the first 64 bytes now
        binding.run(feeds(values=values(256), quantized_type=INT8_PAGE))
        with pytest.raises(RunError, match=r"cache\[0\]"):
            binding.run(feeds(values=values(60), quantized_type=INT8_PAGE))


def test_a_fed_table_may_not_lie_in_a_bound_one() -> None:
    made = with_types(
        model(
            [
                container("cache", mutable=True),
                container("other"),
                scalar("page_id"),
                tensor("values", FLOAT, (2, "rows", 8)),
                scalar("position"),
                tensor("ids", 7, ["n"]),
            ],
            [paged_update("cache", "updated"), gather("other", "pages")],
            [container("updated", alias_of="cache"), tensor("pages", FLOAT, [2, None, 8])],
        )
    )
    pages = [int8_page(rows(4)) for _ in range(4)]
    run_feeds = {"page_id": 0, "values": rows(1), "position": 0, "ids": np.array([1])}
    with Session(made).bind({"cache": table(pages, made)}) as binding:
        apart = [int8_page(rows(4)) for _ in range(3)]
        np.testing.assert_array_equal(binding.run(run_feeds | {"other": apart})["pages"], rows(4))
        with pytest.raises(RunError, match=r"cache\[2\]") as failed:
            binding.run(run_feeds | {"other": [*apart, pages[2]]})
        assert failed.value.requirement is Req.MC_BIND_004


def test_the_header_of_a_bound_payload_may_change() -> None:
    made = with_types(
        model(
            [
                container("cache", mutable=True),
                scalar("page_id"),
                tensor("values", FLOAT, (2, "rows", 8)),
                scalar("position"),
                tensor("ids", 7, ["n"]),
            ],
            [paged_update("cache", "updated"), gather("updated", "pages")],
            [container("updated", alias_of="cache"), tensor("pages", FLOAT, [2, None, 8])],
        )
    )
    page = identity_page(ZERO)
    with Session(made).bind({"cache": table([page], made)}) as binding:
        page.payload.shape = (2, 128)
        page.payload.flags.writeable = False
        run_feeds = {"page_id": 0, "values": rows(4), "position": 0, "ids": np.array([0])}
        np.testing.assert_array_equal(binding.run(run_feeds)["pages"], rows(4))


# Threads.


def test_a_table_that_changes_while_it_is_being_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that another binding makes between the judgement and the lease would be in no lease."""
    made, one, other = table(), Session(paged_model()), Session(paged_model())
    claim = Lending.claim_mutable

    def slow_claim(lending: Lending, *arguments: Any) -> Any:
        claims = claim(lending, *arguments)
        if lending is other._lending:
            with one.bind({"cache": made}) as binding:
                binding.run(feeds(page_id=len(made)))
        return claims

    monkeypatch.setattr(Lending, "claim_mutable", slow_claim)
    with pytest.raises(BindError) as refused:
        other.bind({"cache": made})
    assert refused.value.requirement is Req.MC_BIND_005
    assert not any(LEASES.held().values())
    monkeypatch.undo()
    with other.bind({"cache": made}):
        (held,) = [group for group in LEASES.held().values() if group]
        assert storage_of(made[0].payload).byte_range in {one.byte_range for one in held}


def test_a_table_may_grow_while_it_is_looked_at() -> None:
    made = table([identity_page(ZERO)])
    items = iter(made.items())
    next(items)
    made.put(1, identity_page(ZERO))
    assert (list(items), list(made)) == ([], [0, 1])


def test_bindings_in_threads_exclude_each_other_and_readers_see_whole_pages() -> None:
    made, sessions = table(), [Session(paged_model()) for _ in range(2)]
    reader = Session(gather_model())
    unexpected: list[BaseException] = []

    def attempt(action: Callable[[], object], *expected: Req) -> None:
        try:
            action()
        except MutcacheError as error:
            if error.requirement not in expected:
                unexpected.append(error)
        except BaseException as error:
            unexpected.append(error)

    def grow(session: Session) -> None:
        with session.bind({"cache": made}) as binding:
            for _ in range(3):
                binding.run(feeds(page_id=len(made)))

    def loop(action: Callable[[], object], *expected: Req) -> threading.Thread:
        def body() -> None:
            for _ in range(40):
                attempt(action, *expected)

        return threading.Thread(target=body)

    threads = [
        *(loop(partial(grow, session), Req.MC_BIND_005) for session in sessions),
        loop(lambda: reader.run({"cache": made, "ids": np.array([0])}), Req.MC_PAGED_016),
        loop(lambda: (repr(made), made.copy(), page_table_to_proto(made))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected
    assert list(made) == list(range(len(made)))
    assert len(made) % 3 == 0


# Messages and models.


def test_a_message_of_pages_and_something_else_is_refused() -> None:
    for field in ("tensor_values", "sequence_values", "map_values", "optional_values", "sparse_tensor_values"):
        proto = page_table_to_proto(table([identity_page(ZERO)]))
        assert isinstance(proto, SequenceProto)
        getattr(proto, field).add()
        with pytest.raises(DecodeError, match=field):
            page_table_from_proto(proto, model=paged_model(), value="cache")


def test_garbage_is_not_saved() -> None:
    with pytest.raises(BindError, match="expected a PageTable"):
        page_table_to_proto([identity_page(ZERO)])  # type: ignore[arg-type]


def test_every_update_of_a_container_that_writes_parts_of_groups_is_named() -> None:
    count = 5
    names = [f"version_{index}" for index in range(count)]
    made = with_types(
        model(
            [
                container("cache", mutable=True),
                scalar("page_id"),
                tensor("values", FLOAT, (2, 4, "columns")),
                scalar("position"),
            ],
            [paged_update(source, name, axis=-1) for source, name in zip(["cache", *names], names, strict=False)],
            [container(names[-1], alias_of="cache")],
        )
    )
    with pytest.raises(MutcacheError) as refused:
        check_model(made)
    found = [one for one in refused.value.diagnostics if one.requirement is Req.MC_PAGED_013]  # type: ignore[attr-defined]
    assert len({one.where for one in found}) == count
