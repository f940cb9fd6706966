"""MC-PROTO, MC-ALIAS-001 to 009, 013 and 015, MC-ACCESS: each with a sound model one field away."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from mutcache.check import diagnose
from mutcache.diagnostics import Severity
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT = TensorProto.FLOAT
Edit = Callable[[ModelProto], object]


def value(name: str, *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    return tensor(name, FLOAT, [8, 4], mutable=mutable, alias_of=alias_of)


def chain() -> ModelProto:
    """A copy of one cache, two chained updates of it, and an unrelated cache; sound."""
    return model(
        [
            value("cache", mutable=True),
            tensor("rows", FLOAT, [2, 4]),
            tensor("at", TensorProto.INT64, []),
            value("other", mutable=True),
        ],
        [
            node("Neg", ["cache"], ["negated"]),
            update("cache", "rows", "at", "first"),
            update("first", "rows", "at", "second"),
            update("other", "rows", "at", "third"),
        ],
        [value("negated"), value("second", alias_of="cache"), value("third", alias_of="other")],
        value_info=[value("first", alias_of="cache")],
    )


def errors(made: ModelProto) -> list[Req | None]:
    return [finding.requirement for finding in diagnose(made) if finding.is_error]


def test_the_model_that_the_faults_are_made_of_is_sound() -> None:
    assert diagnose(chain()) == []


def entry(made: ModelProto, index: int = 1) -> ValueAliasProto:
    return made.graph.node[index].output_alias[0]


def set_field(message: object, field: str, content: object) -> None:
    setattr(message, field, content)


def replace(messages: object, index: int, content: NodeProto | ValueInfoProto) -> None:
    messages[index].CopyFrom(content)  # type: ignore[index]  # a repeated field of either message


FAULTS: dict[str, tuple[Req, Edit]] = {
    "older-version": (Req.MC_PROTO_002, lambda m: set_field(m, "ir_version", 14)),
    "no-version": (Req.MC_PROTO_002, lambda m: set_field(m, "ir_version", 3)),
    "kind-undefined": (Req.MC_PROTO_003, lambda m: entry(m).ClearField("kind")),
    "kind-unknown": (Req.MC_PROTO_003, lambda m: entry(m).ParseFromString(b"\x08\x00\x10\x00\x18\x05")),
    "access-unknown": (Req.MC_PROTO_004, lambda m: m.graph.input[0].MergeFromString(b"\x28\x02")),
    "access-not-a-number": (Req.MC_PROTO_004, lambda m: m.graph.output[0].MergeFromString(b"\x2a\x01x")),
    "output-too-large": (Req.MC_ALIAS_001, lambda m: set_field(entry(m), "output_index", 1)),
    "output-negative": (Req.MC_ALIAS_001, lambda m: set_field(entry(m), "output_index", -(2**31))),
    "input-too-large": (Req.MC_ALIAS_002, lambda m: set_field(entry(m), "input_index", 2**31 - 1)),
    "input-negative": (Req.MC_ALIAS_002, lambda m: set_field(entry(m), "input_index", -1)),
    "same-entry-twice": (Req.MC_ALIAS_003, lambda m: aliased(m.graph.node[1])),
    "names-another-cache": (Req.MC_ALIAS_005, lambda m: set_field(m.graph.output[1], "alias_of", "other")),
    "names-another-value": (Req.MC_ALIAS_005, lambda m: set_field(m.graph.output[1], "alias_of", "rows")),
    "one-entry-of-two-disagrees": (
        Req.MC_ALIAS_005,
        lambda m: m.graph.value_info.append(value("first", alias_of="other")),
    ),
    "names-nothing": (Req.MC_ALIAS_006, lambda m: set_field(m.graph.output[1], "alias_of", "nowhere")),
    "names-what-was-renamed": (Req.MC_ALIAS_006, lambda m: set_field(m.graph.output[1], "alias_of", "negated_")),
    "itself": (Req.MC_ALIAS_007, lambda m: set_field(m.graph.value_info[0], "alias_of", "first")),
    "the-next-one": (Req.MC_ALIAS_007, lambda m: set_field(m.graph.value_info[0], "alias_of", "second")),
    "on-an-input": (Req.MC_ALIAS_008, lambda m: set_field(m.graph.input[3], "alias_of", "cache")),
    "on-an-ordinary-output": (Req.MC_ALIAS_008, lambda m: set_field(m.graph.output[0], "alias_of", "cache")),
    "on-nothing": (Req.MC_ALIAS_008, lambda m: m.graph.value_info.append(value("ghost", alias_of="cache"))),
    "silent-output": (Req.MC_ALIAS_009, lambda m: m.graph.output[1].ClearField("alias_of")),
    "no-entry": (Req.MC_ALIAS_015, lambda m: m.graph.node[1].ClearField("output_alias")),
    "another-input": (Req.MC_ALIAS_015, lambda m: set_field(entry(m), "input_index", 1)),
    "on-an-output": (Req.MC_ACCESS_001, lambda m: set_field(m.graph.output[1], "access", ValueInfoProto.READ_WRITE)),
    "on-a-value": (Req.MC_ACCESS_001, lambda m: set_field(m.graph.value_info[0], "access", ValueInfoProto.READ_WRITE)),
    "on-the-wrong-entry": (Req.MC_ACCESS_001, lambda m: m.graph.value_info.append(value("rows", mutable=True))),
    "initializer": (
        Req.MC_ACCESS_002,
        lambda m: m.graph.initializer.append(initializer("cache", FLOAT, [8, 4], bytes(128))),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_finding_of_its_requirement(fault: str) -> None:
    requirement, edit = FAULTS[fault]
    made = chain()
    edit(made)
    assert errors(made) == [requirement]


def test_one_fault_in_each_place_is_one_finding_each() -> None:
    made = chain()
    entry(made, 1).output_index = 4
    entry(made, 2).input_index = 5
    made.graph.output[2].ClearField("alias_of")
    assert errors(made) == [Req.MC_ALIAS_001, Req.MC_ALIAS_002, Req.MC_ALIAS_009]


def with_custom_node(*entries: tuple[int, int], inputs: tuple[str, ...] = ("cache", "other")) -> ModelProto:
    """A vendor's operator with two outputs and the given entries."""
    custom = node("Swap", inputs, ["y", "z"], domain="vendor")
    for ports in entries:
        aliased(custom, *ports)
    roots = {output: inputs[source] for output, source in reversed(entries)}
    made = model(
        [value("cache", mutable=True), value("other", mutable=True)],
        [custom],
        [value("y", alias_of=roots.get(0, "")), value("z", alias_of=roots.get(1, ""))],
    )
    made.opset_import.add(domain="vendor", version=1)
    return made


def test_mc_alias_001_and_002_reject_operands_that_are_left_out() -> None:
    assert errors(with_custom_node((0, 0), (1, 1))) == []
    made = with_custom_node((0, 0), inputs=("cache", "", "other"))
    aliased(made.graph.node[0], 1, 1)
    assert errors(made) == [Req.MC_ALIAS_002]
    made = with_custom_node((0, 0))
    made.graph.node[0].output.append("")
    aliased(made.graph.node[0], 2, 1)
    assert errors(made) == [Req.MC_ALIAS_001]


def test_mc_alias_004_rejects_two_names_for_one_input() -> None:
    assert errors(with_custom_node((0, 0), (1, 0))) == [Req.MC_ALIAS_004]


def test_mc_alias_013_rejects_an_output_that_is_two_storages() -> None:
    assert errors(with_custom_node((0, 0), (0, 1))) == [Req.MC_ALIAS_003, Req.MC_ALIAS_013]
    assert errors(with_custom_node((0, 0))) == []


@pytest.mark.parametrize("target", ["cache", "first"])
def test_mc_alias_005_accepts_every_earlier_name_of_the_class(target: str) -> None:
    made = chain()
    made.graph.output[1].alias_of = target
    assert errors(made) == []


def test_mc_alias_007_prints_the_whole_cycle() -> None:
    made = chain()
    made.graph.input[0].alias_of = "second"
    (finding,) = (finding for finding in diagnose(made) if finding.is_error)
    assert finding.requirement is Req.MC_ALIAS_007
    path = re.findall(r"'(\w+)'", finding.message)
    storage_of = {"first": "cache", "second": "first", "cache": "second"}
    assert len(path) == 4
    assert all(storage_of[name] == following for name, following in itertools.pairwise(path))


def test_mc_alias_007_finds_cycles_of_nodes_too() -> None:
    made = chain()
    made.graph.node[1].input[0] = "second"
    found = errors(made)
    assert Req.MC_ALIAS_007 in found
    assert found[-1] is None  # and stock onnx: the nodes are in no order


def test_mc_alias_009_exempts_an_output_that_bears_the_inputs_own_name() -> None:
    made = model([value("cache", mutable=True)], [], [value("cache")])
    assert errors(made) == []


def test_mc_access_002_rejects_a_sparse_initializer() -> None:
    made = chain()
    sparse = made.graph.sparse_initializer.add(dims=[8, 4])
    sparse.values.CopyFrom(initializer("cache", FLOAT, [0], b""))
    sparse.indices.CopyFrom(initializer("", TensorProto.INT64, [0], b""))
    assert Req.MC_ACCESS_002 in errors(made)


def spare(edit: Callable[[ValueInfoProto], object]) -> list[Req | None]:
    """The errors of a model with one more READ_WRITE input, of the type that ``edit`` gives it."""
    made = chain()
    edit(made.graph.input.add(name="spare", access=ValueInfoProto.READ_WRITE))
    return errors(made)


def test_mc_access_003_accepts_tensors_and_containers_of_quantized_tensors() -> None:
    def fill(quantized: object) -> None:
        set_field(quantized, "elem_type", TensorProto.FLOAT16)

    def map_of_pages(added: ValueInfoProto) -> None:
        added.type.map_type.key_type = TensorProto.INT64
        fill(added.type.map_type.value_type.quantized_tensor_type)

    assert spare(lambda added: added.CopyFrom(value("spare", mutable=True))) == []
    assert spare(lambda added: fill(added.type.sequence_type.elem_type.quantized_tensor_type)) == []
    assert spare(map_of_pages) == []


@pytest.mark.parametrize("kind", ["string", "bare", "plain-sequence", "nested-sequence", "string-keys", "optional"])
def test_mc_access_003_rejects_other_types(kind: str) -> None:
    def retype(added: ValueInfoProto) -> None:
        kinds = added.type
        if kind == "string":
            added.CopyFrom(tensor("spare", TensorProto.STRING, [3], mutable=True))
        elif kind == "bare":
            kinds.quantized_tensor_type.CopyFrom(type(kinds).QuantizedTensor(elem_type=FLOAT))
            kinds.quantized_tensor_type.shape.SetInParent()
        elif kind == "plain-sequence":
            kinds.sequence_type.elem_type.tensor_type.elem_type = FLOAT
        elif kind == "nested-sequence":
            kinds.sequence_type.elem_type.sequence_type.elem_type.quantized_tensor_type.elem_type = FLOAT
        elif kind == "string-keys":
            kinds.map_type.key_type = TensorProto.STRING
            kinds.map_type.value_type.quantized_tensor_type.elem_type = FLOAT
        else:
            kinds.optional_type.elem_type.tensor_type.elem_type = FLOAT

    assert spare(retype) == [Req.MC_ACCESS_003]


def test_mc_access_004_warns_of_a_cache_that_nothing_mutates() -> None:
    made = chain()
    made.graph.input.append(value("spare", mutable=True))
    (finding,) = diagnose(made)
    assert (finding.requirement, finding.severity, finding.where.value) == (
        Req.MC_ACCESS_004,
        Severity.WARNING,
        "spare",
    )


def test_mc_proto_002_speaks_of_every_field_of_the_delta() -> None:
    def old(edit: Edit) -> list[Req | None]:
        made = model([value("x")], [node("Neg", ["x"], ["y"])], [value("y")], ir_version=14)
        edit(made)
        return errors(made)

    assert old(lambda m: set_field(m, "producer_name", "x")) == []
    assert old(lambda m: m.quantizations.add().identity.SetInParent()) == [Req.MC_PROTO_002]
    assert old(lambda m: set_field(m.graph.input[0], "access", ValueInfoProto.READ_ONLY)) == []
    assert old(lambda m: set_field(m.graph.input[0], "alias_of", "")) == []
    assert old(lambda m: set_field(m.graph.input[0], "access", ValueInfoProto.READ_WRITE)) == [Req.MC_PROTO_002]
    assert old(lambda m: aliased(m.graph.node[0])) == [Req.MC_PROTO_002, Req.MC_ALIAS_009, Req.MC_ALIAS_010]
    pages = ValueInfoProto(name="pages")
    pages.type.sequence_type.elem_type.quantized_tensor_type.elem_type = FLOAT
    assert old(lambda m: m.graph.input.append(pages)) == [Req.MC_PROTO_002]


def test_mc_proto_006_wants_version_1_of_the_domain_where_its_operators_are() -> None:
    made = chain()
    (imported,) = (opset for opset in made.opset_import if opset.domain == "onnx.mutable_cache")
    assert errors(made) == []
    imported.version = 2
    assert errors(made) == [Req.MC_PROTO_006]
    made.opset_import.remove(imported)
    assert errors(made) == [Req.MC_PROTO_006]


def test_mc_proto_006_reaches_subgraphs_and_functions() -> None:
    def of(*, subgraph: int, function: int) -> list[tuple[Req | None, str]]:
        """The errors of a model with operators in a branch and in a function, which import these versions."""
        gather = node("PagedCacheGather", ["a", "b"], ["c"], domain="onnx.mutable_cache")
        branch = node("If", ["k"], ["y"])
        branch.attribute.add(name="then_branch").g.node.append(gather)
        made = model([value("x")], [branch], [value("y")])
        made.opset_import.add(domain="onnx.mutable_cache", version=subgraph)
        body = made.functions.add(domain="local", name="f", node=[gather])
        body.opset_import.add(domain="onnx.mutable_cache", version=function)
        return [(f.requirement, f.where.graph) for f in diagnose(made, base=False) if f.is_error]

    assert of(subgraph=1, function=1) == []
    assert of(subgraph=2, function=1) == [(Req.MC_PROTO_006, "main/If_0.then_branch")]
    assert of(subgraph=1, function=3) == [(Req.MC_PROTO_006, "local::f")]


def test_rules_of_single_entries_reach_subgraphs_and_functions() -> None:
    branch = node("If", ["k"], ["y"])
    body = branch.attribute.add(name="then_branch").g
    body.node.append(aliased(node("Neg", ["x"], ["z"]), 3, 0))
    body.value_info.append(value("z", mutable=True))
    made = model([value("x")], [branch], [value("y")])
    function = made.functions.add(domain="local", name="f")
    function.node.append(node("CacheUpdate", ["a", "b", "c"], ["d"], domain="onnx.mutable_cache"))
    found = [(f.requirement, f.where.graph) for f in diagnose(made, base=False) if f.is_error]
    assert found == [
        (Req.MC_PROTO_006, "local::f"),
        (Req.MC_ALIAS_001, "main/If_0.then_branch"),
        (Req.MC_ALIAS_015, "local::f"),
        (Req.MC_ALIAS_010, "local::f"),
        (Req.MC_ACCESS_001, "main/If_0.then_branch"),
    ]
