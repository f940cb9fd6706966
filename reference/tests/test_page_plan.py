"""Memory plans of models with page tables: what a page needs, and how many a run makes."""

from __future__ import annotations

from typing import Any

import pytest
from flow_models import body, branch, call, function, passed
from paged_models import FLOAT, INT64, constant, container, gather, gather_model, paged_model, paged_update
from test_paged_graphs import flow, prefill_model

from mutcache import MemoryPlan, PlanError, plan
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import initializer, tensor

#: Bytes of a page of 64 elements: as they are, static INT8, static UINT8, INT8 in blocks of 8 with a FLOAT scale.
PAGE_BYTES = {0: 256, 1: 64, 2: 64, 3: 64 + 8 * 4}


def planned(made: ModelProto, **dims: int) -> MemoryPlan:
    memory = plan(made, dims).memory
    assert memory is not None
    return memory


def new(made: ModelProto, **dims: int) -> tuple[int | None, int | None]:
    (table,) = planned(made, **dims).tables
    return table.new_pages, table.new_bytes


def test_the_bytes_of_a_page_by_its_type() -> None:
    (table,) = planned(paged_model(), rows=1).tables
    assert table.page_bytes == PAGE_BYTES
    assert (table.name, table.names, table.is_mutable) == ("cache", ("cache", "updated"), True)
    (table,) = planned(paged_model(allowed=[1, 3]), rows=1).tables
    assert table.page_bytes == {1: 64, 3: 96}
    (table,) = planned(paged_model(dims=["h", "s", 8], values=["h", 1, 8]), h=1, s=2).tables
    assert table.page_bytes == {0: 64, 1: 16, 2: 16, 3: 16 + 8}


def test_an_existing_page_counts_as_nothing_and_a_new_one_as_itself() -> None:
    """MC-PLAN-003: zero bytes for the update, the page that may be new at its largest."""
    memory = planned(paged_model(), rows=1)
    assert memory.cache_bytes == 0
    assert memory.new_page_bytes == 256
    assert memory.peak_bytes == memory.input_bytes + 256 == 3 * 8 + 2 * 8 * 4 + 256
    assert memory.copying_peak_bytes == memory.peak_bytes
    assert memory.unknown == ()


def test_a_type_that_is_constant_is_what_a_new_page_has() -> None:
    made = paged_model()
    made.graph.input.pop()
    made.graph.initializer.append(constant("quantized_type", 1))
    assert new(made, rows=1) == (1, 64)


def test_a_read_only_table_makes_no_pages() -> None:
    memory = planned(gather_model(), n=3)
    (table,) = memory.tables
    assert (table.is_mutable, table.new_pages, table.new_bytes) == (False, 0, 0)
    assert memory.in_place.peak_bytes == 3 * 256 + 8, "what is gathered, and the length"


def test_chains_and_functions_add_up() -> None:
    write = function(
        "Write", ["c", "k2", "v", "r"], ["w"], [paged_update("c", "w", "k2", "v", "r")],
        container("c", dims=None, mutable=True), container("w", dims=None, alias_of="c"),
    )  # fmt: skip
    made = flow(
        [
            paged_update("t", "u", "i", "a", "p"),
            call("Write", ["u", "i", "a", "p"], ["v"]),
            call("Write", ["v", "j", "b", "p"], ["w"]),
        ],
        container("w", alias_of="t"),
        functions=[write],
    )
    assert new(made, n=1) == (3, 3 * 256)


def test_of_two_branches_the_busier_one_counts() -> None:
    made = flow(
        [
            branch(
                ["u"],
                body(
                    [paged_update("t", "t1", "i", "a", "p"), paged_update("t1", "t2", "j", "a", "p")],
                    container("t2", alias_of="t"),
                ),
                body([passed("t", "kept")], container("kept", alias_of="t")),
            )
        ],
        container("u", alias_of="t"),
    )
    assert new(made, n=1) == (2, 2 * 256)


@pytest.mark.parametrize(("trips", "expected"), [(5, (5, 5 * 256)), (0, (0, 0)), (None, (None, None))])
def test_a_loop_makes_as_many_pages_as_trips(trips: int | None, expected: Any) -> None:
    dims = {"prompt_length": 12, "n": 1} | ({} if trips is None else {"m": trips})
    assert new(prefill_model(), **dims) == expected
    memory = planned(prefill_model(), **dims)
    assert ("main: new pages of t" in memory.unknown) == (trips is None)


def test_an_update_that_cannot_fit_has_no_plan() -> None:
    made = paged_model()
    made.graph.initializer.append(constant("position", 2))
    del made.graph.input[3]
    assert new(made, rows=2) == (1, 256)
    with pytest.raises(PlanError) as refused:
        planned(made, rows=3)
    assert refused.value.requirement is Req.MC_PAGED_005


def test_sizes_of_pages_must_be_given() -> None:
    made = paged_model(dims=["h", "s", 8], values=["h", 1, 8])
    with pytest.raises(PlanError, match="'s'"):
        planned(made, h=2)
    with pytest.raises(PlanError, match="no dimension 'z'"):
        planned(made, h=2, s=4, z=1)


def test_what_is_gathered_has_a_size() -> None:
    for elem_type in (FLOAT, TensorProto.BFLOAT16):
        made = gather_model(elem_type=elem_type, dims=["h", "s", 8])
        made.graph.initializer.append(initializer("some", INT64, [2], bytes(16)))
        made.graph.node.append(gather("cache", "more", "some"))
        made.graph.output.append(tensor("more", elem_type, [None, None, None]))
        memory = planned(made, h=2, s=4, n=1)
        sizes = {storage.name: storage.bytes for storage in memory.in_place.storages}
        width = 4 if elem_type == FLOAT else 2
        assert sizes == {"pages": 64 * width, "length": 8, "more": 128 * width}
