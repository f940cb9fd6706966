"""The checker on random models, sound and broken, and on what is no model at all.

A sound model is accepted, a broken one is told what is wrong with it; neither changes with names, with the order of
entries, or when functions are inlined. Whatever the bytes, the answer is a list of findings or a DecodeError.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from flow_models import BOOL, body, call, function, graph, passed, scalar, updated, value
from hypothesis import HealthCheck, given, settings
from mutators import BrokenModel, broken_models, scopes
from sound_models import SoundModel, sound_models

from mutcache.check import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.errors import DecodeError, MutcacheError
from mutcache.inline import inline
from mutcache.prefix import add_prefix
from mutcache.proto import parse, serialize
from mutcache.proto.onnx_ml import AttributeProto, GraphProto, ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.flow_family import renamed

MODERATE = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
#: Subgraphs may nest so deep; what is deeper is a DecodeError, and so is anything serialized deeper than about 30.
STATED_DEPTH = 100


def verdict(findings: Iterable[Diagnostic]) -> Counter[tuple[Req | None, str]]:
    """What was found, without saying where."""
    return Counter((finding.requirement, finding.severity.value) for finding in findings)


def broken_rules(model: ModelProto) -> set[Req | None]:
    return {finding.requirement for finding in diagnose(model) if finding.is_error}


def models() -> st.SearchStrategy[ModelProto]:
    """Sound and broken ones."""
    return st.one_of(sound_models().map(lambda sound: sound.model), broken_models().map(lambda broken: broken.model))


@given(broken_models())
@settings(MODERATE, max_examples=300)
def test_a_broken_rule_is_named(broken: BrokenModel) -> None:
    found = broken_rules(broken.model)
    mutator = broken.mutator
    assert found.intersection(mutator.requirements)
    assert found <= {*mutator.requirements, *mutator.also}


@given(models())
@MODERATE
def test_the_verdict_is_the_same_twice_and_leaves_the_model_alone(model: ModelProto) -> None:
    before = serialize(model)
    findings = diagnose(model)
    assert diagnose(model) == findings
    assert serialize(model) == before
    assert diagnose(parse(before)) == findings


@given(models(), st.integers(1, 2**32))
@MODERATE
def test_names_do_not_matter(model: ModelProto, nonce: int) -> None:
    expected = verdict(diagnose(model))
    assert verdict(diagnose(renamed(model, Draw(nonce, "names")))) == expected
    assert verdict(diagnose(add_prefix(model, "p/"))) == expected


@given(models(), st.randoms(use_true_random=False))
@MODERATE
def test_the_order_of_value_info_does_not_matter(model: ModelProto, order: random.Random) -> None:
    expected = verdict(diagnose(model))
    for scope in scopes(model):
        entries = [type(one).FromString(one.SerializeToString()) for one in scope.value_info]
        order.shuffle(entries)
        del scope.value_info[:]
        scope.value_info.extend(entries)
    assert verdict(diagnose(model)) == expected


@given(sound_models())
@MODERATE
def test_a_sound_model_is_sound_when_it_is_inlined(sound: SoundModel) -> None:
    assert broken_rules(inline(sound.model)) == set()


@given(broken_models())
@MODERATE
def test_a_broken_model_is_broken_when_it_is_inlined(broken: BrokenModel) -> None:
    try:
        inlined = inline(broken.model)
    except MutcacheError:
        return
    if broken.mutator.inlined:
        assert broken_rules(inlined)


# What is no model, or hardly one.


def judge(model: ModelProto) -> None:
    """Anything but an answer is an error of the test."""
    for base in (True, False):
        try:
            diagnose(model, base=base)
        except DecodeError:
            return


@given(models(), st.data())
@settings(MODERATE, max_examples=200)
def test_damaged_bytes_end_in_findings_or_a_decode_error(model: ModelProto, data: st.DataObject) -> None:
    damaged = bytearray(serialize(model))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        stop = data.draw(st.integers(start, min(start + 4, len(damaged))))
        damaged[start:stop] = data.draw(st.binary(max_size=6))
    try:
        decoded = parse(bytes(damaged))
    except DecodeError:
        return
    judge(decoded)


@given(st.binary(max_size=200))
@MODERATE
def test_random_bytes_end_in_findings_or_a_decode_error(data: bytes) -> None:
    try:
        decoded = parse(data)
    except DecodeError:
        return
    judge(decoded)


@given(models(), st.data())
@settings(MODERATE, max_examples=150)
def test_absurd_numbers_end_in_findings(model: ModelProto, data: st.DataObject) -> None:
    """Counts, sizes, indices and types at the ends of their ranges, anywhere in a model."""
    huge = st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1])
    places = [one for scope in scopes(model) for one in scope.node]
    for _ in range(data.draw(st.integers(1, 3))):
        one = data.draw(st.sampled_from(places))
        number = data.draw(huge)
        match data.draw(st.integers(0, 4)):
            case 0:
                one.output_alias.add(output_index=number, input_index=data.draw(huge), kind=1)
            case 1:
                one.attribute.add(name="num_scan_inputs", type=2, i=number << 31)
            case 2:
                entry = data.draw(st.sampled_from(model.graph.input))
                entry.type.tensor_type.shape.dim.add(dim_value=number << 32)
            case 3:
                model.graph.initializer.add(name="c0", data_type=number, dims=[number << 32, 2**62])
            case 4:
                entry = data.draw(st.sampled_from(model.graph.input))
                entry.type.tensor_type.elem_type = number
    judge(model)


def nested(depth: int, operator: str) -> ModelProto:
    """An update in a body in a body ...; made from outside to inside, since protobuf copies no deep message."""
    made = graph([], value("n0" if depth else "n", alias_of="c"))
    scope = made.graph
    for level in range(depth):
        inner = f"n{level + 1}" if level + 1 < depth else "n"
        if operator == "If":
            node = scope.node.add(op_type="If", input=["k"], output=[f"n{level}"])
            otherwise = node.attribute.add(name="else_branch", type=AttributeProto.GRAPH)
            otherwise.g.CopyFrom(body([passed("c", f"e{level}")], value(f"e{level}", alias_of="c")))
            attribute = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH)
        else:
            node = scope.node.add(op_type="Loop", input=["m", "", "c"], output=[f"n{level}"])
            attribute = node.attribute.add(name="body", type=AttributeProto.GRAPH)
            attribute.g.input.extend([scalar(f"i{level}"), scalar(f"go{level}", BOOL), value(f"f{level}")])
            attribute.g.output.append(scalar(f"go{level}", BOOL))
        scope = attribute.g
        scope.name = "body"
        scope.output.append(value(inner, alias_of="c"))
    scope.node.append(updated("c", "n"))
    return made


@pytest.mark.parametrize("operator", ["If", "Loop"])
@pytest.mark.parametrize("depth", [5, 30, 60, STATED_DEPTH - 1, STATED_DEPTH + 1, 400])
def test_deep_nesting_in_memory(operator: str, depth: int) -> None:
    model = nested(depth, operator)
    if depth > STATED_DEPTH:
        with pytest.raises(DecodeError, match="levels deep"):
            diagnose(model)
    else:
        # Stock onnx reads no model that nests deeper than protobuf does, whatever the rules say.
        assert (Req.MC_FLOW_006 in broken_rules(model)) == (operator == "Loop")
        if operator == "If":
            assert broken_rules(model) <= {None}


@pytest.mark.parametrize("depth", [5, 40, 400])
def test_deep_nesting_serialized(depth: int) -> None:
    if depth == 5:
        assert broken_rules(parse(serialize(nested(depth, "If")))) == set()
        return
    with pytest.raises(DecodeError):
        parse(serialize(nested(depth, "If")))


def test_a_deep_type_in_memory() -> None:
    model = graph([updated("c", "u")], value("u", alias_of="c"))
    deep = model.graph.input.add(name="deep").type
    for _ in range(300):
        deep = deep.sequence_type.elem_type
    deep.tensor_type.elem_type = 1
    with pytest.raises(DecodeError, match="levels deep"):
        diagnose(model)


def test_long_chains_of_everything() -> None:
    """Thousands of updates, of functions that call the next one, and of entries: linear, and without recursion."""
    count = 2000
    names = ["c", *(f"n{number}" for number in range(count))]
    chain = [updated(source, output) for source, output in itertools.pairwise(names)]
    assert broken_rules(graph(chain, value(names[-1], alias_of="c"))) == set()
    lent = [value("a", mutable=True), value("b", alias_of="a")]
    operands = ["a", "r", "p"]
    functions = [function("f0", operands, ["b"], [updated("a", "b")], *lent)]
    functions += [
        function(f"f{number}", operands, ["b"], [call(f"f{number - 1}", operands, ["b"])], *lent)
        for number in range(1, 300)
    ]
    called = call("f299", ["c", "r", "p"], ["u"])
    found = broken_rules(graph([called], value("u", alias_of="c"), functions=functions))
    assert found <= {None}, "stock onnx may give up, the rules do not"
    crowded = updated("c", "u")
    crowded.output_alias.extend([crowded.output_alias[0]] * count)
    assert Req.MC_ALIAS_003 in broken_rules(graph([crowded], value("u", alias_of="c")))


def test_bodies_that_are_missing_or_empty() -> None:
    for operator in ("If", "Loop", "Scan", "CacheUpdate", "step"):
        for domain in ("", "onnx.mutable_cache", "local"):
            for attribute in ("body", "then_branch", "num_scan_inputs"):
                node = NodeProto(op_type=operator, domain=domain, input=["c"], output=["u", ""])
                node.attribute.add(name=attribute, type=5, g=GraphProto())
                judge(graph([node], value("u", alias_of="c")))
