"""Page tables through chains, branches, loops and functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flow_models import body, branch, call, function, loop, passed
from paged_models import (
    FLOAT,
    IDENTITY,
    INT8_PAGE,
    INT64,
    PACKED,
    PAGE,
    constant,
    container,
    gather,
    identity_page,
    paged_update,
    rows,
    scalar,
    with_types,
)

from mutcache import PageTable, RunError, Session
from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import initializer, model, node, tensor


def flow(
    nodes: list[NodeProto], *outputs: ValueInfoProto, is_map: bool = False, functions: Any = (), more: Any = ()
) -> ModelProto:
    """Nodes on a table ``t``, with operands ``a`` of two rows and ``b`` of one, conditions and counts."""
    made = model(
        [
            container("t", mutable=True, is_map=is_map),
            tensor("a", FLOAT, [2, 2, 8]),
            tensor("b", FLOAT, [2, 1, 8]),
            *(scalar(name) for name in ("i", "j", "p", "q", "type", "m")),
            tensor("k", TensorProto.BOOL, []),
            tensor("ids", INT64, ["n"]),
            *more,
        ],
        nodes,
        outputs,
    )
    made.functions.extend(functions)
    for domain in (DOMAIN, "local"):
        if all(opset.domain != domain for opset in made.opset_import):
            made.opset_import.add(domain=domain, version=DOMAIN_VERSION)
    return with_types(made)


FEEDS: dict[str, Any] = {
    "a": rows(2, 1),
    "b": rows(1, 60),
    "i": 0,
    "j": 1,
    "p": 0,
    "q": 2,
    "type": INT8_PAGE,
    "m": 2,
    "k": np.array(True),
    "ids": np.array([0, 1]),
}


def run(made: ModelProto, pages: Any = (), **changes: Any) -> tuple[PageTable, dict[str, Any]]:
    """One run on these pages; the table as the run leaves it, and the outputs."""
    is_map = made.graph.input[0].type.HasField("map_type")
    table = PageTable(dict(pages) if is_map else list(pages), model=made, value="t")
    session = Session(made)
    names = {value.name for value in made.graph.input} - {"t"}
    with session.bind({"t": table}) as binding:
        try:
            outputs = binding.run({name: value for name, value in (FEEDS | changes).items() if name in names})
        except RunError as error:
            error.table = table  # type: ignore[attr-defined]
            raise
    return table, outputs


def page(*written: tuple[int, Array]) -> Array:
    """A page with rows written at positions, zero elsewhere."""
    made = np.zeros(PAGE, np.float32)
    for position, values in written:
        made[:, position : position + values.shape[1]] = values
    return made


A, B = rows(2, 1), rows(1, 60)


@pytest.mark.parametrize("is_map", [False, True])
def test_a_chain_creates_writes_and_reads(is_map: bool) -> None:
    made = flow(
        [
            paged_update("t", "u", "i", "a", "p", "type"),
            paged_update("u", "v", "i", "b", "q"),
            gather("v", "before"),
            paged_update("v", "w", "j", "b", "p", "type"),
            passed("w", "x"),
            gather("x", "after"),
        ],
        tensor("before", FLOAT, [None, None, None]),
        container("x", alias_of="t", is_map=is_map),
        tensor("after", FLOAT, [None, None, None]),
        is_map=is_map,
    )
    table, outputs = run(made, ids=np.array([0]), j=7 if is_map else 1)
    assert outputs["x"] is table
    np.testing.assert_array_equal(outputs["before"], page((0, A), (2, B)))
    np.testing.assert_array_equal(outputs["after"], page((0, A), (2, B)))
    assert list(table) == [0, 7 if is_map else 1]
    np.testing.assert_array_equal(table.decode(list(table)[1]), page((0, B)))


def test_a_read_before_the_write_sees_the_pages_before_it() -> None:
    """A snapshot outlives the mutation (MC-PLAN-006): the Identity has no alias, so its output is a value."""
    made = flow(
        [
            node("Identity", ["t"], ["snapshot"]),
            paged_update("t", "u", "i", "b", "q"),
            gather("u", "new"),
            gather("snapshot", "old"),
            node("SequenceLength", ["snapshot"], ["length"]),
        ],
        *(tensor(name, FLOAT, [None, None, None]) for name in ("new", "old")),
        scalar("length"),
        container("snapshot"),
    )
    first = page((0, A), (2, rows(2, 30)))
    table, outputs = run(made, [identity_page(first)], ids=np.array([0]))
    np.testing.assert_array_equal(outputs["old"], first)
    np.testing.assert_array_equal(outputs["new"], page((0, A), (2, B), (3, rows(2, 30)[:, 1:])))
    assert outputs["length"] == 1
    snapshot = outputs["snapshot"]
    assert isinstance(snapshot, PageTable)
    assert snapshot is not table
    np.testing.assert_array_equal(snapshot.decode(0), first)
    assert not np.may_share_memory(snapshot[0].payload, table[0].payload)


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_updates_a_captured_sequence(condition: bool) -> None:
    made = flow(
        [
            branch(
                ["u"],
                body([paged_update("t", "then", "i", "a", "p")], container("then", alias_of="t")),
                body([passed("t", "otherwise")], container("otherwise", alias_of="t")),
            ),
            gather("u", "y"),
        ],
        tensor("y", FLOAT, [None, None, None]),
        container("u", alias_of="t"),
    )
    before = page((1, rows(3, 20)))
    table, outputs = run(made, [identity_page(before)], k=np.array(condition), ids=np.array([0]))
    expected = page((0, A), (2, rows(3, 20)[:, 1:])) if condition else before
    np.testing.assert_array_equal(outputs["y"], expected)
    assert outputs["u"] is table


PREFILL = [
    node("Unsqueeze", ["i2", "zero"], ["i3"]),
    node("Mul", ["i3", "page_size"], ["start"]),
    node("Add", ["start", "page_size"], ["stop"]),
    node("Slice", ["prompt", "start", "stop", "axis"], ["part"]),
    node("Add", ["i2", "first"], ["number"]),
    paged_update("loop_cache", "loop_updated", "number", "part", "origin", "type"),
]


def prefill_model() -> ModelProto:
    """The specification's example: a prompt goes into as many new pages as it needs."""
    trip = loop(
        ["t"],
        ["u"],
        [node("Identity", ["i"], ["i2"]), *PREFILL],
        container("loop_updated", alias_of="loop_cache"),
        formals=[container("loop_cache", mutable=True)],
    )
    made = flow(
        [node("SequenceLength", ["t"], ["first"]), trip],
        container("u", alias_of="t"),
        more=[tensor("prompt", FLOAT, [2, "prompt_length", 8])],
    )
    for index, one in enumerate(made.graph.input):
        if one.name == "i":  # the number of the iteration, inside
            del made.graph.input[index]
            break
    made.graph.initializer.extend(
        [
            initializer("zero", INT64, [1], bytes(8)),
            initializer("page_size", INT64, [1], (4).to_bytes(8, "little")),
            initializer("axis", INT64, [1], (1).to_bytes(8, "little")),
            constant("origin", 0),
        ]
    )
    return made


@pytest.mark.parametrize(("length", "trips"), [(4, 1), (10, 3), (12, 3), (1, 1), (0, 0)])
def test_a_loop_fills_pages_from_a_prompt(length: int, trips: int) -> None:
    prompt = rows(length, 3)
    table, outputs = run(prefill_model(), [identity_page(page())], prompt=prompt, m=trips, type=INT8_PAGE)
    assert outputs["u"] is table
    assert len(table) == 1 + trips
    found = np.concatenate([table.decode(number) for number in range(1, 1 + trips)] or [page()[:, :0]], axis=1)
    np.testing.assert_array_equal(found[:, :length], prompt)
    assert not found[:, length:].any()


@pytest.mark.parametrize("is_map", [False, True])
def test_a_function_updates_the_table_of_its_call(is_map: bool) -> None:
    made = flow(
        [
            call("Write", ["t", "i", "a"], ["u"]),
            call("Write", ["u", "j", "b"], ["v"]),
            gather("v", "y"),
        ],
        tensor("y", FLOAT, [None, None, None]),
        container("v", alias_of="t", is_map=is_map),
        is_map=is_map,
        functions=[
            function(
                "Write",
                ["cache", "number", "rows"],
                ["written"],
                [
                    node("Sub", ["number", "number"], ["origin"]),
                    paged_update("cache", "written", "number", "rows", "origin", "number"),
                ],
                container("cache", dims=None, is_map=is_map, mutable=True),
                container("written", dims=None, is_map=is_map, alias_of="cache"),
            )
        ],
    )
    table, outputs = run(made, {} if is_map else [])
    assert [one.quantized_type for one in table.values()] == [IDENTITY, INT8_PAGE]
    np.testing.assert_array_equal(outputs["y"], np.concatenate([page((0, A)), page((0, B))], axis=1))


def test_a_function_reads_a_read_only_map() -> None:
    made = model(
        [container("t", is_map=True), tensor("ids", INT64, ["n"])],
        [call("Read", ["t", "ids"], ["y"])],
        [tensor("y", FLOAT, [None, None, None])],
    )
    made.functions.append(
        function(
            "Read",
            ["cache", "which"],
            ["read"],
            [node("Identity", ["cache"], ["same"]), gather("same", "read", "which")],
        )
    )
    made.opset_import.add(domain="local", version=1)
    made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    with_types(made)
    first, second = page((0, A)), page((3, B))
    outputs = Session(made).run(
        {"t": {5: identity_page(first), 2**40: identity_page(second)}, "ids": np.array([2**40, 5])}
    )
    np.testing.assert_array_equal(outputs["y"], np.concatenate([second, first], axis=1))


def test_a_failed_chain_leaves_a_prefix_of_whole_updates() -> None:
    made = flow(
        [
            paged_update("t", "u", "i", "a", "p", "type"),
            paged_update("u", "v", "j", "b", "p", "type"),
            paged_update("v", "w", "j", "a", "q"),
            paged_update("w", "x", "i", "b", "p"),
        ],
        container("x", alias_of="t"),
    )
    with pytest.raises(RunError) as failed:
        run(made, q=3)  # position 3 + length 2 > page size 4
    assert failed.value.requirement is Req.MC_PAGED_005
    table: PageTable = failed.value.table  # type: ignore[attr-defined]
    assert len(table) == 2
    np.testing.assert_array_equal(table.decode(0), page((0, A)))
    np.testing.assert_array_equal(table.decode(1), page((0, B)))
    assert len(failed.value.values["completed"]) == 2  # type: ignore[arg-type]


def test_a_failing_loop_keeps_its_earlier_iterations() -> None:
    with pytest.raises(RunError) as failed:
        run(prefill_model(), prompt=rows(6, 3), m=2, type=9)
    assert failed.value.requirement is Req.MC_PAGED_006
    with pytest.raises(RunError) as failed:
        run(prefill_model(), [identity_page(page())] * 0, prompt=rows(6, 3)[:, :, :], m=np.array(2), type=np.array(-1))
    assert failed.value.requirement is Req.MC_PAGED_006


@pytest.mark.parametrize("schedule", ["node-order", "random:1", "random:5"])
def test_two_tables_do_not_disturb_each_other(schedule: str) -> None:
    made = model(
        [
            container("s", mutable=True),
            container("t", dims=["heads", "size", 8], mutable=True),
            tensor("values", FLOAT, [2, "rows", 8]),
            scalar("page_id"),
            scalar("position"),
            scalar("type"),
        ],
        [
            paged_update("s", "s1", quantized_type="type"),
            paged_update("t", "t1", quantized_type="type"),
            paged_update("t1", "t2"),
            paged_update("s1", "s2"),
        ],
        [container("s2", alias_of="s"), container("t2", alias_of="t", dims=["heads", "size", 8])],
    )
    with_types(made)
    one, two = (
        PageTable([identity_page(np.zeros(dims, np.float32))], model=made, value=name)
        for name, dims in (("s", PAGE), ("t", (2, 6, 8)))
    )
    with Session(made, schedule=schedule).bind({"s": one, "t": two}) as binding:
        outputs = binding.run({"values": A, "page_id": 1, "position": 2, "type": PACKED})
    assert outputs["s2"] is one
    assert outputs["t2"] is two
    assert [table[1].dims for table in (one, two)] == [PAGE, (2, 6, 8)]
    for table in (one, two):
        np.testing.assert_allclose(table.decode(1)[:, 2:4], A, atol=0.2)
        assert not table.decode(0).any()
