"""``mutcache show``: what it says of storage, how it folds and wraps, and that nothing in a model can upset it."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from onnx import parser
from rich.console import Console

from mutcache.decode import decode
from mutcache.proto import from_onnx, save
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, TypeProto, ValueAliasProto, ValueInfoProto
from mutcache_tools import cli
from mutcache_tools.show import ShownModel, view
from mutcache_tools.show_text import FEW, LONG, ModelText


def mark(node: NodeProto) -> None:
    node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)


def parse(text: str) -> ModelProto:
    return from_onnx(parser.parse_model(f'<ir_version: 15, opset_import: ["": 21, "onnx.mutable_cache": 1]>{text}'))


def seed_model() -> ModelProto:
    model = parse(
        """g (float16[2,batch,heads,max_length,head_size] cache, float16[2,batch,heads,new_length,head_size] values,
            int64 position) => (float16[2,batch,heads,max_length,head_size] updated_cache)
        { [update] updated_cache = onnx.mutable_cache.CacheUpdate(cache, values, position) }"""
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    mark(model.graph.node[0])
    return model


def branching_model() -> ModelProto:
    model = parse(
        """g (float[4,2] cache, float[1,2] values, int64 position, bool full) => (float[4,2] final, float[2] before)
        { before = ReduceMax<keepdims = 0, noop_with_empty_axes = 0>(cache)
          chosen = If (full) <
            then_branch = then_graph () => (float[4,2] kept) { kept = Identity(cache) },
            else_branch = else_graph () => (float[4,2] written)
              { written = onnx.mutable_cache.CacheUpdate(cache, values, position) }>
          final = onnx.mutable_cache.CacheUpdate(chosen, values, position) }"""
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "chosen"
    for branch in (attribute.g for attribute in model.graph.node[1].attribute):
        mark(branch.node[0])
        branch.output[0].alias_of = "cache"
    mark(model.graph.node[2])
    return model


def shown(model: ModelProto) -> ShownModel:
    return view(decode(model), [])


def text(model: ModelProto, width: int = 80, *, show_all: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    console.print(ModelText(shown(model), "model.onnx", show_all=show_all))
    return stream.getvalue().splitlines()


def test_the_example_of_the_proposal_at_80_columns() -> None:
    assert text(seed_model()) == [
        "model.onnx",
        "IR version 15, standard operators 21, onnx.mutable_cache 1",
        "no findings",
        "",
        "main",
        "  in    cache     FLOAT16[2, batch, heads, max_length, head_size]  READ_WRITE",
        "  in    values    FLOAT16[2, batch, heads, new_length, head_size]",
        "  in    position  INT64[]",
        "  #0    updated_cache = CacheUpdate(cache, values, position)  [update]",
        "        writes cache; updated_cache is cache, version 1",
        "  out   updated_cache  FLOAT16[2, batch, heads, max_length, head_size]  is",
        "                       cache, version 1",
    ]


@pytest.mark.parametrize("width", [30, 80, 120, 10_000])
def test_no_line_is_longer_than_the_width_and_nothing_is_lost(width: int) -> None:
    lines = text(seed_model(), width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert "".join("".join(lines).split()) == "".join("".join(text(seed_model(), 10_000)).split())


def test_roots_and_versions_through_branches() -> None:
    graph = shown(branching_model()).graph
    before, choice, final = graph.nodes
    assert (before.writes, before.reads) == ((), ("cache",))
    assert (choice.writes, choice.outputs[0].alias and choice.outputs[0].alias.root) == (("cache",), "cache")
    written = choice.subgraphs["else_branch"].nodes[0]
    kept = choice.subgraphs["then_branch"].nodes[0]
    assert [node.outputs[0].alias and node.outputs[0].alias.version for node in (kept, written)] == [0, 1]
    assert [node.outputs[0].alias and node.outputs[0].alias.root for node in (kept, written)] == ["cache", "cache"]
    alias = graph.outputs[0].alias
    assert alias is not None
    assert (alias.root, alias.version, alias.alias_of) == ("cache", 2, "chosen")
    assert final.outputs[0].type == "FLOAT[4, 2]"
    assert choice.outputs[0].type == "FLOAT[4, 2]"  # declared by the root alone


def test_a_function_is_shown_after_the_graph() -> None:
    model = seed_model()
    function = model.functions.add(domain="local", name="step", input=["c", "v"], output=["out"])
    function.node.add(op_type="Mul", input=["c", "v"], output=["out"])
    lines = text(model)
    assert lines[lines.index("function local::step") :] == [
        "function local::step",
        "  in    c",
        "  in    v",
        "  #0    out = Mul(c, v)",
        "  out   out",
    ]


def test_long_graphs_are_folded_to_what_has_to_do_with_caches() -> None:
    model = seed_model()
    graph = model.graph
    for number in range(LONG):
        graph.node.add(op_type="Neg", input=["values"], output=[f"n{number}"])
    for number in range(FEW + 1):
        graph.initializer.add(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[2])
    folded, everything = text(model), text(model, show_all=True)
    assert f"  ...   #1 to #{LONG}: {LONG} nodes without a cache" in folded
    assert f"  const {FEW + 1} initializers" in folded
    assert "        writes cache; updated_cache is cache, version 1" in folded
    assert f"  #{LONG}   n{LONG - 1} = Neg(values)" in everything
    assert "  const w0  FLOAT[2]" in everything


def test_page_types_in_words() -> None:
    model = parse(
        """g (seq(float16[2,8,16,64]) cache, seq(float16[2,8]) free) => (seq(float16[2,8]) other)
        { other = Identity(free) }"""
    )
    packed = model.quantizations.add(data_type=TensorProto.FLOAT16).packed_linear
    packed.storage_type, packed.bits, packed.block_size = TensorProto.UINT4, 4, 32
    packed.scale_type, packed.zero_point_type, packed.layout = (
        TensorProto.FLOAT16,
        TensorProto.UINT8,
        packed.INTERLEAVED,
    )
    model.quantizations.add(data_type=TensorProto.FLOAT16).cast.storage_type = TensorProto.FLOAT8E4M3FN
    model.quantizations.add(data_type=TensorProto.BFLOAT16).identity.SetInParent()
    linear = model.quantizations.add(data_type=TensorProto.FLOAT).linear
    linear.storage_type, linear.scale_float, linear.zero_point = TensorProto.UINT8, 0.5, 128
    model.quantizations.add().codebook.codebook.extend([0.0, 1.0])
    model.quantizations.add()
    for value, allowed in zip(model.graph.input, ([0, 1, 9], []), strict=True):
        element = value.type.sequence_type.elem_type
        pages = TypeProto.QuantizedTensor(elem_type=TensorProto.FLOAT16, allowed_quantized_type=allowed)
        pages.shape.CopyFrom(element.tensor_type.shape)
        element.quantized_tensor_type.CopyFrom(pages)
    result = shown(model)
    assert result.page_types == (
        "UINT4 in blocks of 32, scale FLOAT16, zero point UINT8, interleaved",
        "cast to FLOAT8E4M3FN",
        "BFLOAT16 as it is",
        "UINT8 whole page, scale 0.5, zero point 128",
        "codebook of 2",
        "unknown kind",
    )
    assert [value.type for value in result.graph.inputs] == [
        "sequence of FLOAT16[2, 8, 16, 64] pages (0 UINT4, 1 FLOAT8E4M3FN, 9 undeclared)",
        "sequence of FLOAT16[2, 8] pages (of any type)",
    ]


def test_attributes_are_short() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) {
          a = Constant<value = int64[2] {3, -1}>() b = Constant<value = float[2,3] {1,2,3,4,5,6}>()
          c = Custom<ints = [1,2,3,4,5,6,7,8,9], f = 0.5, text = "a word">(x) y = Identity(x) }"""
    )
    attributes = [dict(node.attributes) for node in shown(model).graph.nodes]
    assert attributes == [
        {"value": "[3, -1]"},
        {"value": "FLOAT[2, 3]"},
        {"ints": "[1, 2, 3, 4, 5, 6, 7, 8, ...]", "f": "0.5", "text": "'a word'"},
        {},
    ]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(["show", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return code, captured.out


def test_an_unsound_model_is_shown_and_points_to_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = seed_model()
    model.graph.output[0].alias_of = "updated_cache"
    model.graph.node.add(op_type="CacheUpdate", domain="onnx.mutable_cache", input=["cache", "cache"], output=["fork"])
    save(model, tmp_path / "bad.onnx")
    code, out = run(capsys, str(tmp_path / "bad.onnx"))
    assert code == 0
    assert f"mutcache check {tmp_path / 'bad.onnx'}" in out
    assert "alias_of updated_cache" in out
    code, out = run(capsys, str(tmp_path / "bad.onnx"), "--format", "json")
    assert json.loads(out)["findings"]["error"] >= 2


def test_json_has_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save(branching_model(), tmp_path / "model.onnx")
    code, out = run(capsys, str(tmp_path / "model.onnx"), "--format", "json")
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    findings = document["findings"]
    assert document["model"] == str(tmp_path / "model.onnx")
    expected = json.loads(json.dumps(asdict(shown(branching_model()))))
    assert {**expected, "findings": findings, "model": document["model"]} == document
    assert document["graph"]["inputs"][0] == {
        "name": "cache",
        "type": "FLOAT[4, 2]",
        "access": "READ_WRITE",
        "alias": {"root": "cache", "version": 0, "alias_of": ""},
    }


def test_an_unreadable_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "noise.onnx").write_bytes(b"\xff\xff")
    assert run(capsys, str(tmp_path / "noise.onnx"))[0] == 2


def test_names_cannot_drive_the_terminal() -> None:
    model = seed_model()
    model.graph.node.add(op_type="Neg", input=["values"], output=["evil\x1b[2J\nname"], name="[bold]node[/bold]")
    lines = text(model)
    assert not any("\x1b" in line for line in lines)
    assert any(r"'evil\x1b[2J\nname' = Neg(values)" in line and "[bold]node[/bold]" in line for line in lines)
