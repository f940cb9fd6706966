"""The oracle on control flow and functions, against literals worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import AttributeProto, FunctionProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import model, node, tensor
from mutcache_conformance.cases.flow_words import (
    LENT,
    LOCAL,
    STEP_INPUTS,
    cache,
    call,
    choose,
    function,
    graph,
    keep,
    keeps,
    loop,
    neg,
    rows,
    scalar,
    scan,
    step,
    step_function,
    write,
    writes,
)
from mutcache_conformance.oracle import OracleRefusal, OracleResult, run_model

INT32, INT64, BOOL = 6, 7, 9
CARRIED = cache("carried", mutable=True)
INNER = cache("inner", root="carried")
MOVING = [node("Add", ["position", "i"], ["at"]), write("carried", "inner", position="at")]


def run(
    nodes: Iterable[NodeProto],
    *outputs: ValueInfoProto,
    functions: Sequence[FunctionProto] = (),
    caches: str = "a",
    **feeds: int | bool | list[int],
) -> OracleResult:
    """Run on caches of four rows of one number, all 0, and one row of 7 to write, 8 for ``values_b``."""
    inputs = [cache(f"cache_{one}" if len(caches) > 1 else "cache", mutable=True) for one in caches]
    given: dict[str, Any] = {value.name: np.zeros((4, 1), np.int32) for value in inputs}
    for name, written in {"values": 7, "values_b": 8}.items():
        inputs.append(rows(name))
        given[name] = np.full((1, 1), written, np.int32)
    for name, number in feeds.items():
        array = np.array(number)
        inputs.append(tensor(name, BOOL if array.dtype == np.bool_ else INT64, list(array.shape)))
        given[name] = array
    made = model(inputs, nodes, outputs)
    made.functions.extend(functions)
    for domain, version in ((DOMAIN, DOMAIN_VERSION), (LOCAL, 1)):
        made.opset_import.add(domain=domain, version=version)
    return run_model(serialize(made), given)


def contents(history: tuple[Any, ...]) -> list[list[int]]:
    return [array.ravel().tolist() for array in history]


def refusal(*args: Any, **kwargs: Any) -> OracleRefusal:
    with pytest.raises(OracleRefusal) as refused:
        run(*args, **kwargs)
    return refused.value


LOOP = loop({"cache": CARRIED}, ["updated"], MOVING, INNER)


@pytest.mark.parametrize(
    ("trips", "history"),
    [(0, [[0, 0, 0, 0]]), (2, [[0, 0, 0, 0], [0, 7, 0, 0], [0, 7, 7, 0]])],
)
def test_a_loop_has_an_update_for_each_trip(trips: int, history: list[list[int]]) -> None:
    result = run([LOOP], cache("updated", root="cache"), position=1, trips=trips)
    assert contents(result.classes["cache"]) == history
    assert result.root_of_output == {"updated": "cache"}
    assert result.outputs["updated"].ravel().tolist() == history[-1]


def test_a_loop_ends_by_its_condition() -> None:
    nodes = [*MOVING, node("Less", ["at", "stop"], ["goes_on"])]
    ended = loop({"cache": CARRIED}, ["updated"], nodes, INNER, go="goes_on", trips="")
    result = run([ended], cache("updated", root="cache"), position=0, stop=1)
    assert contents(result.classes["cache"]) == [[0, 0, 0, 0], [7, 0, 0, 0], [7, 7, 0, 0]]
    given = NodeProto.FromString(LOOP.SerializeToString())
    given.input[1] = "first"
    result = run([given], cache("updated", root="cache"), position=0, trips=3, first=False)
    assert contents(result.classes["cache"]) == [[0, 0, 0, 0]]


def test_what_a_loop_collects_is_stacked() -> None:
    results = (INNER, cache("inner"), scalar("at"))
    collecting = loop({"cache": CARRIED}, ["updated", "history", "positions"], MOVING, *results)
    collected = (tensor("history", INT32, [None, None, None]), tensor("positions", INT64, [None]))
    result = run([collecting], *collected, position=2, trips=2)
    assert result.outputs["history"].shape == (2, 4, 1)
    assert result.outputs["history"][..., 0].tolist() == [[0, 0, 7, 0], [0, 0, 7, 7]]
    assert result.outputs["positions"].tolist() == [2, 3]
    assert result.root_of_output == {}
    none = run([collecting], *collected, position=2, trips=0)
    assert none.outputs["positions"].shape == (0,)


def test_a_scan_goes_along_its_axes_and_directions() -> None:
    written = write("carried", "inner", position="at")
    nodes, results = [neg("carried", "old"), written], (INNER, cache("old"))
    scanning = scan({"cache": CARRIED}, {"positions": scalar("at")}, ["updated", "before"], nodes, *results)
    before = tensor("before", INT32, [None, None, None])
    result = run([scanning], cache("updated", root="cache"), before, positions=[3, 0])
    assert contents(result.classes["cache"]) == [[0, 0, 0, 0], [0, 0, 0, 7], [7, 0, 0, 7]]
    assert result.outputs["before"][..., 0].tolist() == [[0, 0, 0, 0], [0, 0, 0, -7]]
    for name, value in (("scan_input_directions", 1), ("scan_output_axes", 1)):
        scanning.attribute.add(name=name, type=AttributeProto.INTS, ints=[value])
    result = run([scanning], before, positions=[3, 0])
    assert contents(result.classes["cache"]) == [[0, 0, 0, 0], [7, 0, 0, 0], [7, 0, 0, 7]]
    assert result.outputs["before"].shape == (4, 2, 1)


def test_functions_have_overloads_and_attributes() -> None:
    axis = node("CacheUpdate", ["formal", "rows", "at"], ["result"], domain=DOMAIN)
    axis.output_alias.add(kind=1)
    axis.attribute.add(name="axis", type=AttributeProto.INT, ref_attr_name="along")
    along = function("step", STEP_INPUTS, ["result"], [axis], *LENT, overload="along")
    along.attribute.append("along")
    called = call("step", ["first", "values_b", "zero"], ["updated"], overload="along")
    called.attribute.add(name="along", type=AttributeProto.INT, i=0)
    nodes = [step("cache", "first"), called]
    result = run(nodes, cache("updated", root="cache"), functions=[step_function(), along], position=2, zero=0)
    assert contents(result.classes["cache"]) == [[0, 0, 0, 0], [0, 0, 7, 0], [8, 0, 7, 0]]


def test_another_operator_may_update_in_place() -> None:
    added = node("Add", ["cache", "values"], ["updated"])
    added.output_alias.add(kind=1)
    result = run([added], cache("updated", root="cache"))
    assert contents(result.classes["cache"]) == [[0, 0, 0, 0], [7, 7, 7, 7]]
    assert result.root_of_output == {"updated": "cache"}


# Refusals


def test_a_refused_trip_leaves_those_before_it() -> None:
    refused = refusal([LOOP, neg("updated", "negated")], cache("negated"), position=2, trips=5)
    assert refused.requirement is Req.MC_DENSE_003
    assert contents(refused.classes["cache"]) == [[0, 0, 0, 0], [0, 0, 7, 0], [0, 0, 7, 7]]


def test_a_branch_that_is_not_taken_refuses_nothing() -> None:
    chosen = choose("updated", writes(), keeps())
    assert contents(run([chosen], position=9, condition=False).classes["cache"]) == [[0, 0, 0, 0]]
    assert refusal([chosen], position=9, condition=True).requirement is Req.MC_DENSE_003


def test_updates_beside_the_refused_one_may_be_there() -> None:
    """In the same body and around it; what needs the refused one cannot be there."""
    names = {"a": "position", "b": "other"}
    nodes = [write(f"cache_{one}", f"inner_{one}", position=names[one]) for one in "ab"]
    nodes.append(write("inner_b", "last_b", "values_b", "zero"))
    then = graph(nodes, cache("inner_a", root="cache_a"), cache("last_b", root="cache_b"))
    otherwise = graph(
        [keep("cache_a", "kept_a"), keep("cache_b", "kept_b")],
        cache("kept_a", root="cache_a"),
        cache("kept_b", root="cache_b"),
    )
    chosen = choose(["updated_a", "updated_b"], then, otherwise)
    later = [write("updated_b", "again_b"), write("cache_c", "updated_c", position="other")]
    refused = refusal([chosen, *later], caches="abc", position=9, other=1, zero=0, condition=True)
    assert contents(refused.classes["cache_a"]) == [[0, 0, 0, 0]]
    assert contents(refused.classes["cache_b"]) == [[0, 0, 0, 0], [0, 7, 0, 0], [8, 7, 0, 0]]
    assert contents(refused.classes["cache_c"]) == [[0, 0, 0, 0], [0, 7, 0, 0]]
