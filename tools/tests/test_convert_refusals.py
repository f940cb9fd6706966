"""Decoders that cannot be converted are refused, with the node or value named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from mutcache.proto import from_onnx
from mutcache_tools.convert import convert
from mutcache_tools.growing_caches import ConvertError, find_growing_caches


def model_of(inputs: str, outputs: str, nodes: str, *, opset: int = 18, functions: str = "") -> onnx.ModelProto:
    imports = f'"": {opset}' + (', "local": 1' if functions else "")
    return parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({outputs}) {{ {nodes} }} {functions}"
    )


PAST = "float[B,P,4] past, float[B,S,4] new"
PRESENT = "float[B,T,4] present"
CAT = "[cat] present = Concat<axis=1>(past, new)"

VALID = model_of(PAST, PRESENT, CAT)


def test_smallest_valid_decoder_is_converted() -> None:
    # Every refusal below is one change away from this model.
    result = convert(VALID, 16)
    assert [value.name for value in result.graph.input] == ["past", "new", "position"]
    assert [(value.name, value.alias_of) for value in result.graph.output] == [("present", "past")]
    assert result.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 16


FUNCTION = '<domain: "local", opset_import: ["": 18]> grow (a, b) => (c) { [inner] c = Concat<axis=1>(a, b) }'

REFUSED = {
    "not a graph output": (
        model_of(PAST, "float[B,T,4] present", "[cat] grown = Concat<axis=1>(past, new) present = Neg(grown)"),
        ["Concat 'cat'", "'grown' is not a graph output"],
    ),
    "past is not the first operand": (
        model_of(PAST, PRESENT, "rows = Neg(new) [cat] present = Concat<axis=1>(rows, past)"),
        ["Concat 'cat'", "'past' is operand 1"],
    ),
    "three operands": (
        model_of(PAST, PRESENT, "[cat] present = Concat<axis=1>(past, new, new)"),
        ["Concat 'cat'", "joins 3 operands"],
    ),
    "one operand": (
        model_of(PAST, PRESENT, "[cat] present = Concat<axis=1>(past)"),
        ["Concat 'cat'", "joins 1 operands"],
    ),
    "two Concats": (
        model_of(PAST, f"{PRESENT}, float[B,T,4] again", f"{CAT} [other] again = Concat<axis=1>(past, new)"),
        ["Concat 'other'", "'past' feeds two Concats", "Concat 'cat'"],
    ),
    "appended to itself": (
        model_of(PAST, PRESENT, "[cat] present = Concat<axis=1>(past, past)"),
        ["Concat 'cat'", "'past' to itself"],
    ),
    "past behind an Identity, twice": (
        model_of(
            PAST,
            f"{PRESENT}, float[B,T,4] again",
            f"same = Identity(past) {CAT} [other] again = Concat<axis=1>(same, new)",
        ),
        ["Concat 'other'", "'past' feeds two Concats"],
    ),
    "past is an output": (
        model_of(PAST, f"{PRESENT}, float[B,P,4] past", CAT),
        ["Concat 'cat'", "'past' is itself a graph output"],
    ),
    "unknown rank": (
        model_of("float[] past, float[B,S,4] new", PRESENT, CAT),
        ["Concat 'cat'", "'past' has no declared shape"],
    ),
    "strings": (
        model_of("string[B,P,4] past, string[B,S,4] new", "string[B,T,4] present", CAT),
        ["Concat 'cat'", "'past' has elements of no fixed width"],
    ),
    "fixed length": (
        model_of("float[B,3,4] past, float[B,1,4] new", PRESENT, CAT),
        ["no cache grows", "Concat 'cat'", "'past', whose length is fixed"],
    ),
    "nothing grows": (model_of("float[B,S] x", "float[B,S] y", "y = Neg(x)"), ["no cache grows"]),
    "different static lengths": (
        model_of(
            "float[B,P,4] past, float[B,1,4] new, float[B,P,4] past2, float[B,2,4] new2",
            f"{PRESENT}, float[B,U,4] present2",
            f"{CAT} [cat2] present2 = Concat<axis=1>(past2, new2)",
        ),
        ["'past' by 1", "Concat 'cat'", "'past2' by 2", "Concat 'cat2'"],
    ),
    "different inferred lengths": (
        model_of(
            "float[B,P,4] past, float[B,1,4] new, float[B,P,4] past2",
            f"{PRESENT}, float[B,U,4] present2",
            f"{CAT} twice = Concat<axis=1>(new, new) [cat2] present2 = Concat<axis=1>(past2, twice)",
        ),
        ["'past' by 1", "'past2' by 2", "Concat 'cat2'"],
    ),
    "different symbolic lengths": (
        model_of(
            "float[B,P,4] past, float[B,S,4] new, float[B,P,4] past2, float[B,R,4] new2",
            f"{PRESENT}, float[B,U,4] present2",
            f"{CAT} [cat2] present2 = Concat<axis=1>(past2, new2)",
        ),
        ["'past' by S", "'past2' by R"],
    ),
    "in a function": (
        model_of(PAST, PRESENT, "present = local.grow(past, new)", functions=FUNCTION),
        ["Concat 'inner'", "'past'", "inside local::grow"],
    ),
    "in a branch": (
        model_of(
            f"bool cond, {PAST}",
            PRESENT,
            """[choose] present = If(cond) <
                 then_branch = a () => (float[B,T,4] x) { [inner] x = Concat<axis=1>(past, new) },
                 else_branch = b () => (float[B,T,4] y) { y = Neg(past) }>""",
        ),
        ["Concat 'inner'", "'past'", "inside main/choose.then_branch"],
    ),
    "old opset": (model_of(PAST, PRESENT, CAT, opset=9), ["opset 9", "10 is the first"]),
    "position is taken": (
        model_of(f"{PAST}, float[1] position", PRESENT, CAT),
        ["already has a value named 'position'"],
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refusal_names_what_is_at_fault(reason: str) -> None:
    model, words = REFUSED[reason]
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(ConvertError) as caught:
        convert(model, 16)
    for word in words:
        assert word in caught.value.message
    assert model.SerializeToString(deterministic=True) == before


def test_overridable_initializer_is_refused() -> None:
    model = model_of(PAST, PRESENT, CAT)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 0, 4), np.float32), "past"))
    with pytest.raises(ConvertError, match=r"Concat 'cat'.*'past' has an initializer"):
        convert(model, 16)


def test_mutable_model_is_refused() -> None:
    with pytest.raises(ConvertError, match="already has mutable caches"):
        convert(convert(VALID, 16), 16)


@pytest.mark.parametrize("max_length", [0, -1, 2**63, "", "two words", "P"])
def test_impossible_capacity_is_refused(max_length: int | str) -> None:
    with pytest.raises(ConvertError, match=r"max_length|stands for another"):
        convert(VALID, max_length)


def test_name_of_the_position_can_be_chosen() -> None:
    model, _ = REFUSED["position is taken"]
    result = convert(model, 16, position_name="valid")
    assert [value.name for value in result.graph.input] == ["past", "new", "position", "valid"]


def test_kept_input_stays_as_it_is() -> None:
    # The mask grows too, but its result is no output: only the caller can say that it is no cache.
    model = model_of(
        f"float[B,M] mask, float[B,1] more, {PAST}",
        f"{PRESENT}, float[B,N] y",
        f"{CAT} [m] full = Concat<axis=1>(mask, more) y = Neg(full)",
    )
    with pytest.raises(ConvertError, match=r"Concat 'm'.*--keep mask"):
        convert(model, 16)
    result = convert(model, 16, keep=["mask"])
    assert [node.op_type for node in result.graph.node if node.name in ("cat", "m")] == ["CacheUpdate", "Concat"]
    with pytest.raises(ConvertError, match="'masc' is no graph input"):
        convert(model, 16, keep=["masc"])


def test_symbols_that_an_exporter_made_up_say_nothing_about_lengths() -> None:
    model = model_of(
        "float[B,P,4] past, float[B,S,4] new, float[B,P,4] past2",
        f"{PRESENT}, float[B,U,4] present2",
        f"rows = Neg(new) {CAT} [cat2] present2 = Concat<axis=1>(past2, rows)",
    )
    model.graph.value_info.append(
        onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["B", "Neg_0_dim_1", 4])
    )
    assert [cache.length for cache in find_growing_caches(from_onnx(model))] == ["S", "Neg_0_dim_1"]
    assert len([node for node in convert(model, 16).graph.node if node.op_type == "CacheUpdate"]) == 2


def test_calls_that_fan_out_are_walked_once() -> None:
    # Each function calls the next one twice: 2**40 paths, 40 functions.
    head = '<domain: "local", opset_import: ["": 18, "local": 1]>'
    bodies = [f"{head} f{i} (a) => (c) {{ b = local.f{i + 1}(a) c = local.f{i + 1}(a) }}" for i in range(40)]
    bodies.append(f"{head} f40 (a) => (c) {{ c = Neg(a) }}")
    model = model_of(PAST, "float[B,P,4] y", "y = local.f0(past)", functions=" ".join(bodies))
    with pytest.raises(ConvertError, match="no cache grows"):
        convert(model, 16)
