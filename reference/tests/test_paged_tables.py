"""Pages and page tables: what can be bound and fed, for how long, and what belongs to whom."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from paged_models import (
    FLOAT,
    FLOAT16,
    IDENTITY,
    INT8_PAGE,
    PACKED,
    PAGE,
    ZERO,
    container,
    gather_model,
    identity,
    identity_page,
    int8_page,
    paged_model,
    paged_update,
    rows,
    scalar,
    static_int8,
    table,
    with_types,
)

from mutcache import BindError, Page, PageTable, RunError, Session
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import model, tensor


def payload(n_bytes: int) -> Array:
    return np.zeros(n_bytes, np.uint8)


def feeds(**changes: Any) -> dict[str, Any]:
    return {"page_id": 0, "values": rows(1), "position": 0, "quantized_type": IDENTITY} | changes


# What a table is.


def test_a_sequence_is_a_mapping_from_numbers() -> None:
    first, second = identity_page(ZERO), int8_page(rows(4))
    made = table([first, second])
    assert list(made.items()) == [(0, first), (1, second)]
    assert made == made
    assert made != table([first, second])
    assert made.nbytes == 256 + 64
    assert not made.is_map
    assert repr(made) == "<PageTable 'cache': sequence of 2 pages, 320 bytes>"
    np.testing.assert_array_equal(made.decode(1), rows(4))


def test_a_copy_is_apart() -> None:
    made = table([identity_page(ZERO)])
    twin = made.copy()
    twin[0].payload[:] = 1
    assert not made[0].payload.any()
    assert twin.decode(0).shape == PAGE


@pytest.mark.parametrize(
    ("pages", "is_map"),
    [
        ({0: identity_page(ZERO)}, False),
        ([identity_page(ZERO)], True),
        ("page", False),
        ([ZERO], False),
        ([None], False),
        ({"0": identity_page(ZERO)}, True),
        ({True: identity_page(ZERO)}, True),
        (5, False),
    ],
)
def test_a_table_of_something_else_is_refused(pages: Any, is_map: bool) -> None:
    with pytest.raises(BindError) as refused:
        PageTable(pages, model=paged_model(is_map=is_map), value="cache")
    assert refused.value.requirement is Req.MC_BIND_007


@pytest.mark.parametrize("value", ["values", "nothing", "updated"])
def test_a_table_is_for_a_container_input(value: str) -> None:
    with pytest.raises(BindError, match="no input"):
        PageTable([], model=paged_model(), value=value)


# What can be bound.

BAD: dict[str, tuple[dict[str, Any], Any, Req]] = {
    "type beyond the declarations": ({}, [Page(4, PAGE, payload(256))], Req.MC_PAGED_006),
    "negative type": ({}, [Page(-1, PAGE, payload(256))], Req.MC_PAGED_006),
    "type that is no number": ({}, [Page("0", PAGE, payload(256))], Req.MC_PAGED_006),  # type: ignore[arg-type]
    "type not allowed": ({"allowed": [1]}, [identity_page(ZERO)], Req.MC_PAGED_006),
    "decodes to another type": (
        {"types": [identity(FLOAT), identity(FLOAT16)]},
        [Page(1, PAGE, payload(128))],
        Req.MC_PAGED_007,
    ),
    "payload too short": ({}, [Page(IDENTITY, PAGE, payload(255))], Req.MC_PAGED_007),
    "payload too long": ({}, [Page(INT8_PAGE, PAGE, payload(65))], Req.MC_PAGED_007),
    "n_bytes of another size": ({}, [Page(INT8_PAGE, PAGE, payload(64), n_bytes=63)], Req.MC_PAGED_007),
    "dims of another size": ({}, [Page(INT8_PAGE, (2, 5, 8), payload(80))], Req.MC_PAGED_007),
    "dims of another rank": ({}, [Page(INT8_PAGE, (2, 32), payload(64))], Req.MC_PAGED_007),
    "dims of two pages differ": (
        {"dims": [2, None, 8]},
        [identity_page(ZERO), Page(INT8_PAGE, (2, 5, 8), payload(80))],
        Req.MC_PAGED_007,
    ),
    "negative dims": ({"dims": None}, [Page(INT8_PAGE, (-2, -4, 8), payload(64))], Req.MC_PAGED_007),
    "dims of something else": ({}, [Page(INT8_PAGE, [2, 4, 8], payload(64))], Req.MC_PAGED_007),  # type: ignore[arg-type]
    "dims that no group fits": ({"dims": None}, [Page(PACKED, (2, 4, 7), payload(56))], Req.MC_PAGED_007),
    "no array": ({}, [Page(INT8_PAGE, PAGE, bytes(64))], Req.MC_BIND_007),
    "payload of floats": ({}, [Page(IDENTITY, PAGE, np.zeros(64, np.float32))], Req.MC_BIND_007),
    "payload with a shape": ({}, [Page(IDENTITY, PAGE, payload(256).reshape(2, 128))], Req.MC_BIND_007),
    "payload with gaps": ({}, [Page(INT8_PAGE, PAGE, payload(128)[::2])], Req.MC_BIND_007),
    "negative id": ({"is_map": True}, {-1: identity_page(ZERO)}, Req.MC_PAGED_014),
    "id beyond INT64": ({"is_map": True}, {1 << 63: identity_page(ZERO)}, Req.MC_PAGED_014),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_page_of_the_container_is_neither_bound_nor_fed(what: str) -> None:
    options, pages, requirement = BAD[what]
    made = paged_model(**options)
    with Session(made) as session:
        with pytest.raises(BindError) as refused:
            session.bind({"cache": table(pages, made)})
        assert refused.value.requirement is requirement
        session.bind({"cache": table({} if options.get("is_map") else [], made)}).release()
    reader = Session(gather_model(**options))
    with pytest.raises(RunError) as failed:
        reader.run({"cache": pages, "ids": np.array([0])})
    assert failed.value.requirement is requirement


def test_payloads_that_share_bytes_are_refused() -> None:
    memory = payload(512)
    same = identity_page(ZERO)
    for pages in (
        [same, same],
        [Page(IDENTITY, PAGE, memory[:256]), Page(IDENTITY, PAGE, memory[255:511])],
        [Page(IDENTITY, PAGE, memory[:256]), identity_page(ZERO), Page(INT8_PAGE, PAGE, memory[100:164])],
    ):
        with pytest.raises(BindError) as refused:
            Session(paged_model()).bind({"cache": table(pages)})
        assert refused.value.requirement is Req.MC_PAGED_011
        with pytest.raises(RunError) as failed:
            Session(gather_model()).run({"cache": pages, "ids": np.array([0])})
        assert failed.value.requirement is Req.MC_PAGED_011
    beside = [Page(IDENTITY, PAGE, memory[:256]), Page(IDENTITY, PAGE, memory[256:])]
    Session(paged_model()).bind({"cache": table(beside)}).release()


def test_payloads_without_bytes_share_nothing() -> None:
    made = paged_model(dims=[2, 0, 8])
    empty = payload(0)
    with Session(made).bind(
        {"cache": table([Page(INT8_PAGE, (2, 0, 8), empty), Page(IDENTITY, (2, 0, 8), empty)], made)}
    ):
        pass


def test_read_only_payloads_are_fed_but_not_bound() -> None:
    frozen = identity_page(rows(4))
    frozen.payload.flags.writeable = False
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ) as memory:
        mapped = Page(IDENTITY, PAGE, np.frombuffer(memory, np.uint8)[:256])
        for page in (frozen, mapped):
            with pytest.raises(BindError) as refused:
                Session(paged_model()).bind({"cache": table([identity_page(ZERO), page])})
            assert refused.value.requirement is Req.MC_BIND_002
        outputs = Session(gather_model()).run({"cache": [frozen], "ids": np.array([0])})
        np.testing.assert_array_equal(outputs["pages"], rows(4))
        del mapped, page, refused


def test_an_array_is_no_table() -> None:
    for storage in (ZERO, [identity_page(ZERO)], None):
        with pytest.raises(BindError) as refused:
            Session(paged_model()).bind({"cache": storage})  # type: ignore[dict-item]
        assert refused.value.requirement is Req.MC_BIND_007


def test_a_table_of_another_model_is_refused() -> None:
    other = table([], paged_model(types=[static_int8(2.0)]))
    with pytest.raises(BindError) as refused:
        Session(paged_model()).bind({"cache": other})
    assert refused.value.requirement is Req.MC_PAGED_006
    with pytest.raises(RunError):
        Session(gather_model()).run({"cache": other, "ids": np.zeros(0, np.int64)})


def test_a_sequence_is_no_map() -> None:
    for is_map in (False, True):
        other = table([] if is_map else {}, paged_model(is_map=not is_map))
        with pytest.raises(BindError) as refused:
            Session(paged_model(is_map=is_map)).bind({"cache": other})
        assert refused.value.requirement is Req.MC_BIND_007


def two_tables() -> ModelProto:
    made = model(
        [
            container("cache", dims=["h", "size", 8], mutable=True),
            container("other", dims=["h", "size", 8], mutable=True),
            tensor("values", FLOAT, ["h", "rows", 8]),
            scalar("page_id"),
            scalar("position"),
            scalar("quantized_type"),
        ],
        [
            paged_update("cache", "updated", quantized_type="quantized_type"),
            paged_update("other", "changed", quantized_type="quantized_type"),
        ],
        [
            container(name, dims=["h", "size", 8], alias_of=root)
            for name, root in (("updated", "cache"), ("changed", "other"))
        ],
    )
    return with_types(made)


def test_symbols_have_one_size_in_all_tables_and_feeds() -> None:
    made = two_tables()
    small, large = (Page(INT8_PAGE, dims, payload(int(np.prod(dims)))) for dims in ((2, 4, 8), (2, 5, 8)))
    with Session(made) as session:
        with pytest.raises(BindError) as refused:
            session.bind(
                {name: PageTable([page], model=made, value=name) for name, page in (("cache", small), ("other", large))}
            )
        assert refused.value.requirement is Req.MC_PAGED_007
        empty = PageTable([], model=made, value="other")
        with session.bind({"cache": table([small], made), "other": empty}) as binding:
            with pytest.raises(RunError) as failed:
                binding.run(feeds(values=rows(1, dims=(3, 4, 8))))
            assert failed.value.requirement is Req.MC_SHAPE_003
            binding.run(feeds())
        assert empty[0].dims == PAGE, "the size of the other table's pages is known through the symbol"


def test_the_size_of_the_first_page_must_be_known() -> None:
    made = two_tables()
    tables = {name: PageTable([], model=made, value=name) for name in ("cache", "other")}
    with Session(made).bind(tables) as binding:
        with pytest.raises(RunError) as failed:
            binding.run(feeds())
        assert failed.value.requirement is Req.MC_PAGED_018
    assert not tables["cache"]


# Leases.


def test_a_table_is_leased_even_if_it_is_empty() -> None:
    made = two_tables()
    empty = table([], made)
    with Session(made) as session:
        with pytest.raises(BindError) as refused:
            session.bind({"cache": empty, "other": empty})
        assert refused.value.requirement is Req.MC_BIND_004
    with Session(paged_model()).bind({"cache": (lent := table([]))}):
        with pytest.raises(BindError) as refused:
            Session(paged_model()).bind({"cache": lent})
        assert refused.value.requirement is Req.MC_BIND_005
    Session(paged_model()).bind({"cache": lent}).release()


def test_payloads_are_leased_page_by_page() -> None:
    shared = identity_page(ZERO)
    with Session(paged_model()).bind({"cache": table([identity_page(ZERO), shared])}):
        for page in (shared, Page(INT8_PAGE, PAGE, shared.payload[7:71])):
            with pytest.raises(BindError) as refused:
                Session(paged_model()).bind({"cache": table([page])})
            assert refused.value.requirement is Req.MC_BIND_005
    Session(paged_model()).bind({"cache": table([shared])}).release()


def test_pages_that_runs_make_join_the_lease_and_stay_with_the_table() -> None:
    lent = table()
    with Session(paged_model()).bind({"cache": lent}) as binding:
        binding.run(feeds())
        with pytest.raises(BindError) as refused:
            Session(paged_model()).bind({"cache": table([lent[0]])})
        assert refused.value.requirement is Req.MC_BIND_005
        with pytest.raises(RunError) as failed:
            binding.run(feeds(values=lent[0].payload.view(np.float32).reshape(PAGE)[:, :1]))
        assert failed.value.requirement is Req.MC_BIND_004
    address = lent[0].payload.ctypes.data
    with Session(paged_model()).bind({"cache": lent}) as binding:  # the next session goes on with them
        binding.run(feeds(position=1, values=rows(1, 50)))
    assert lent[0].payload.ctypes.data == address
    np.testing.assert_array_equal(lent.decode(0)[:, :2], np.concatenate([rows(1), rows(1, 50)], axis=1))


def test_a_replaced_payload_returns_to_the_caller_untouched() -> None:
    own = identity_page(rows(4))
    content = own.payload.tobytes()
    lent = table([own, identity_page(ZERO)])
    with Session(paged_model()).bind({"cache": lent}) as binding:
        binding.run(feeds(values=rows(1, 70), quantized_type=INT8_PAGE))
        assert lent[0].payload is not own.payload
        assert own.payload.tobytes() == content
        with Session(paged_model()).bind({"cache": table([own])}):  # its lease has ended
            pass
        with pytest.raises(BindError):
            Session(paged_model()).bind({"cache": table([lent[1]])})


def test_feeds_must_not_overlap_pages() -> None:
    memory = np.zeros(1024, np.float32)
    lent = table([Page(IDENTITY, PAGE, memory[:64].view(np.uint8))])
    with Session(paged_model()).bind({"cache": lent}) as binding:
        with pytest.raises(RunError) as failed:
            binding.run(feeds(values=memory[60:76].reshape(2, 1, 8)))
        assert failed.value.requirement is Req.MC_BIND_004
        binding.run(feeds(values=memory[64:80].reshape(2, 1, 8)))


def test_a_container_is_not_fed_as_an_ordinary_value() -> None:
    lent = table()
    with pytest.raises(RunError) as failed:
        Session(paged_model()).run(feeds(cache=lent))
    assert failed.value.requirement is Req.MC_BIND_001
    with Session(paged_model()).bind({"cache": lent}) as binding:
        with pytest.raises(RunError) as failed:
            binding.run(feeds(cache=lent))
        assert failed.value.requirement is Req.MC_BIND_001


def test_the_output_is_the_table() -> None:
    lent = table()
    session = Session(paged_model())
    with pytest.raises(BindError) as refused:
        session.bind({"cache": lent}, outputs={"updated": table()})
    assert refused.value.requirement is Req.MC_BIND_008
    with session.bind({"cache": lent}, outputs={"updated": lent}) as binding:
        assert binding.run(feeds())["updated"] is lent


def test_a_payload_cannot_be_resized_while_it_is_bound() -> None:
    lent = table([identity_page(ZERO)])
    with Session(paged_model()).bind({"cache": lent}) as binding:
        binding.run(feeds(page_id=1))
        for page in lent.values():
            with pytest.raises(ValueError, match=r"weakly referenced|cannot resize"):
                page.payload.resize(1 << 20, refcheck=False)


def test_whoever_freezes_or_reshapes_a_payload_does_not_disturb_the_binding() -> None:
    lent = table([identity_page(ZERO), int8_page(ZERO)])
    with Session(paged_model()).bind({"cache": lent}) as binding:
        lent[0].payload.flags.writeable = False
        lent[1].payload.flags.writeable = False
        lent[1].payload.shape = (8, 8)
        for number, wanted in ((0, IDENTITY), (1, INT8_PAGE)):
            binding.run(feeds(page_id=number, quantized_type=wanted))
        lent[1].payload.shape = (64,)
    for number in (0, 1):
        np.testing.assert_array_equal(lent.decode(number)[:, :1], rows(1))


# Reading.


@pytest.mark.parametrize("is_map", [False, True])
def test_pages_are_fed_as_they_are(is_map: bool) -> None:
    made = gather_model(is_map=is_map)
    pages = [identity_page(rows(4)), int8_page(rows(4, 30))]
    fed: Any = {3: pages[0], 1: pages[1]} if is_map else pages
    for given in (fed, PageTable(fed, model=made, value="cache")):
        outputs = Session(made).run({"cache": given, "ids": np.array([1, 3, 1] if is_map else [1, 0, 1])})
        np.testing.assert_array_equal(
            outputs["pages"], np.concatenate([rows(4, 30), rows(4), rows(4, 30)], axis=1), strict=True
        )
        assert is_map or outputs["length"] == 2


@pytest.mark.parametrize("axis", [0, 1, 2, -3, -1])
def test_pages_are_concatenated_along_any_axis(axis: int) -> None:
    first, second = rows(4), rows(4, 30)
    outputs = Session(gather_model(axis=axis)).run(
        {"cache": [identity_page(first), int8_page(second)], "ids": np.array([0, 1])}
    )
    np.testing.assert_array_equal(outputs["pages"], np.concatenate([first, second], axis=axis))


@pytest.mark.parametrize("ids", [[2], [0, -1], [0, 1, 1 << 62]])
def test_an_absent_page_is_not_gathered(ids: list[int]) -> None:
    with pytest.raises(RunError) as failed:
        Session(gather_model()).run({"cache": [identity_page(ZERO), int8_page(ZERO)], "ids": np.array(ids)})
    assert failed.value.requirement is Req.MC_PAGED_016


def test_ids_are_a_vector_of_int64() -> None:
    made = gather_model()
    for ids in (np.array([0], np.int32), np.array([[0]]), np.array(0)):
        with pytest.raises(RunError) as failed:
            Session(made).run({"cache": [identity_page(ZERO)], "ids": ids})
        assert failed.value.requirement is Req.MC_PAGED_017


def test_nothing_is_gathered_from_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert Session(gather_model()).run({"cache": [], "ids": none})["pages"].shape == (2, 0, 8)
    made = gather_model(dims=["h", 4, 8])
    with pytest.raises(RunError) as failed:
        Session(made).run({"cache": [], "ids": none})
    assert failed.value.requirement is Req.MC_PAGED_018
    assert Session(made).run({"cache": [identity_page(ZERO)], "ids": none})["pages"].shape == (2, 0, 8)


def test_a_gathered_page_is_no_view() -> None:
    page = identity_page(rows(4))
    gathered = Session(gather_model()).run({"cache": [page], "ids": np.array([0])})["pages"]
    assert not np.may_share_memory(gathered, page.payload)
