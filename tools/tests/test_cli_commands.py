"""The commands: what they print as JSON, and their exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from mutcache.proto import from_onnx, load, save
from mutcache.proto.onnx_ml import ModelProto, ValueAliasProto, ValueInfoProto
from mutcache_tools import example_decoder
from mutcache_tools.commands import commands

if TYPE_CHECKING:
    from command_runs import Command

pytest_plugins = ("command_runs",)


def cache_model(element: str = "float") -> ModelProto:
    """``updated = CacheUpdate(cache, values, position)``, and the sum of what the cache held before."""
    model = from_onnx(
        parser.parse_model(
            f"""<ir_version: 15, opset_import: ["": 18, "onnx.mutable_cache": 1]>
            g ({element}[batch,4,2] cache, {element}[batch,n,2] values, int64 position)
            => ({element}[batch,4,2] updated, {element} before)
            {{ before = ReduceMax<keepdims=0>(cache)
               [update] updated = onnx.mutable_cache.CacheUpdate(cache, values, position) }}"""
        )
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    model.graph.node[1].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    return model


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    save(cache_model(), tmp_path / "valid.onnx")
    return tmp_path / "valid.onnx"


@pytest.fixture
def forked(tmp_path: Path) -> Path:
    """A model with two findings: two updates of one version, the second of which nothing returns."""
    model = cache_model()
    update = model.graph.node.add()
    update.CopyFrom(model.graph.node[1])
    update.name, update.output[0] = "again", "[bold]lost[/bold]"
    model.graph.node[1].output_alias[0].kind = ValueAliasProto.UNDEFINED
    save(model, tmp_path / "forked.onnx")
    return tmp_path / "forked.onnx"


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    onnx.save(example_decoder.build(), tmp_path / "decoder.onnx")
    return tmp_path / "decoder.onnx"


# check


def test_check_accepts_a_valid_model(mutcache: Command, valid: Path) -> None:
    result = mutcache("check", valid, "--format", "json")
    assert result.code == 0
    assert result.json == {"model": str(valid), "diagnostics": []}
    text = mutcache("check", valid)
    assert text.code == 0
    assert str(valid) in text.out


def test_check_reports_every_finding(mutcache: Command, forked: Path) -> None:
    result = mutcache("check", forked, "--format", "json")
    assert result.code == 1
    assert result.json["model"] == str(forked)
    keys = {"requirement", "level", "severity", "graph", "node", "value", "message", "hint"}
    assert all(finding.keys() == keys for finding in result.json["diagnostics"])
    errors = [finding for finding in result.json["diagnostics"] if finding["severity"] == "error"]
    assert "MC-PROTO-003" in {finding["requirement"] for finding in errors}
    assert len(errors) > 1
    text = mutcache("check", forked)
    assert text.code == 1
    for finding in errors:
        # Whole, on one line, and brackets are no markup.
        assert finding["message"] in text.out
        assert finding["requirement"] is None or finding["requirement"] in text.out


def test_check_lets_warnings_pass(mutcache: Command, tmp_path: Path) -> None:
    model = cache_model()
    value = model.graph.input.add()
    value.CopyFrom(model.graph.input[0])
    value.name = "idle"
    save(model, tmp_path / "warned.onnx")
    result = mutcache("check", tmp_path / "warned.onnx", "--format", "json")
    assert result.code == 0
    assert [(each["requirement"], each["severity"]) for each in result.json["diagnostics"]] == [
        ("MC-ACCESS-004", "warning")
    ]


def unreadable(folder: Path) -> dict[str, Path]:
    """Files that are no models, by what is wrong with them."""
    model = cache_model().SerializeToString()
    for name, data in {"text": b"no model", "truncated": model[: len(model) // 2], "empty": b""}.items():
        (folder / f"{name}.onnx").write_bytes(data)
    (folder / "folder.onnx").mkdir(exist_ok=True)
    onnx.save(
        example_decoder.build(),
        folder / "split.onnx",
        save_as_external_data=True,
        location="gone.bin",
        size_threshold=0,
    )
    (folder / "gone.bin").unlink()
    names = ("text", "truncated", "empty", "folder", "split", "missing")
    return {name: folder / f"{name}.onnx" for name in names}


@pytest.mark.parametrize("what", ["text", "truncated", "empty", "folder", "split", "missing"])
@pytest.mark.parametrize("command", ["check", "sort", "convert", "lower", "strip", "run", "greedy"])
def test_unreadable_model_is_no_traceback(mutcache: Command, tmp_path: Path, command: str, what: str) -> None:
    more = {"convert": ["out.onnx", "--max-length", "8"], "greedy": ["--prompt", "1"]}
    more |= {name: ["out.onnx"] for name in ("sort", "lower", "strip")}
    arguments = [command, unreadable(tmp_path)[what], *more.get(command, [])]
    text = mutcache(*arguments)
    assert text.code == 2
    assert text.err.startswith("mutcache: error: ")
    result = mutcache(*arguments, "--format", "json")
    assert result.code == 2
    assert result.json["error"]["message"]
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["check"],
        ["check", "a", "b"],
        ["check", "a", "--format", "yaml"],
        ["convert", "a", "b"],
        ["convert", "a", "b", "--max-length", "0"],
        ["convert", "a", "b", "--max-length", "-3"],
        ["convert", "a", "b", "--max-length", "1e3"],
        ["convert", "a", "b", "--max-length", "9223372036854775808"],
        ["run", "a", "--input", "x"],
        ["run", "a", "--input", "=7"],
        ["run", "a", "--dim", "batch=-1"],
        ["run", "a", "--dim", "batch=one"],
        ["greedy", "a", "--prompt"],
        ["greedy", "a", "--prompt", "one"],
        ["greedy", "a", "--prompt", "1", "--tokens", "0"],
        ["req", "MC-NOTHING-001"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_two(mutcache: Command, arguments: list[str]) -> None:
    result = mutcache(*arguments)
    assert result.code == 2
    assert "error" in result.err


# lower, strip


def test_lower_says_which_buffers_are_one(mutcache: Command, tmp_path: Path) -> None:
    save(cache_model(), tmp_path / "model.onnx")
    result = mutcache("lower", "model.onnx", "lowered.onnx", "--format", "json")
    assert result.code == 0
    assert result.json["lowered"] == 1
    assert result.json["storage"] == [{"input": "cache", "output": "updated"}]
    lowered = onnx.load(tmp_path / "lowered.onnx")
    onnx.checker.check_model(lowered, full_check=True)
    assert "TensorScatter" in [node.op_type for node in lowered.graph.node]
    assert "bind one buffer" in mutcache("lower", "model.onnx", "model.onnx").out
    assert (tmp_path / "model.onnx").read_bytes() == (tmp_path / "lowered.onnx").read_bytes()


def test_lower_names_what_it_cannot_lower(mutcache: Command, tmp_path: Path) -> None:
    model = cache_model()
    update = next(node for node in model.graph.node if node.op_type == "CacheUpdate")
    update.attribute.add(name="batch_axis", i=2, type="INT")
    update.name = "first"
    save(model, tmp_path / "model.onnx")
    result = mutcache("lower", "model.onnx", "lowered.onnx")
    assert result.code == 1
    assert "CacheUpdate 'first': batch_axis is 2" in result.err.replace("\n", " ")
    assert not (tmp_path / "lowered.onnx").exists()


def test_strip_leaves_the_operators(mutcache: Command, tmp_path: Path) -> None:
    save(cache_model(), tmp_path / "model.onnx")
    assert mutcache("strip", "model.onnx", "stripped.onnx", "--format", "json").json["ir_version"] == 14
    stripped = load(tmp_path / "stripped.onnx")
    assert "CacheUpdate" in [node.op_type for node in stripped.graph.node]
    assert "alias" not in str(stripped)
    assert mutcache("strip", "model.onnx", "model.onnx").code == 0


# sort


def test_sort_mends_a_stale_read(mutcache: Command, tmp_path: Path) -> None:
    model = cache_model()
    model.graph.node.add().CopyFrom(model.graph.node[0])
    del model.graph.node[0]
    path = tmp_path / "stale.onnx"
    save(model, path)
    found = mutcache("check", path, "--format", "json")
    assert found.code == 1
    assert "MC-ALIAS-011" in {each["requirement"] for each in found.json["diagnostics"]}
    result = mutcache("sort", path, tmp_path / "sorted.onnx", "--format", "json")
    assert result.code == 0
    assert result.json["moved"] == 2
    assert [node.op_type for node in load(tmp_path / "sorted.onnx").graph.node] == ["ReduceMax", "CacheUpdate"]
    assert mutcache("check", tmp_path / "sorted.onnx").code == 0
    assert mutcache("sort", path, path).code == 0
    assert path.read_bytes() == (tmp_path / "sorted.onnx").read_bytes()
    assert mutcache("sort", path, path, "--format", "json").json["moved"] == 0


# convert


def test_convert_writes_a_valid_model(mutcache: Command, decoder: Path, tmp_path: Path) -> None:
    out = tmp_path / "mutable.onnx"
    result = mutcache("convert", decoder, out, "--max-length", 24, "--format", "json")
    assert result.code == 0
    assert result.json["position"] == "position"
    names = [f"{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    assert result.json["caches"] == [
        {"input": f"past.{name}", "output": f"present.{name}", "dims": ["batch", 2, 24, 8]} for name in names
    ]
    assert mutcache("check", out, "--format", "json").json["diagnostics"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decoder.onnx", "mutable.onnx"]


def test_convert_may_replace_its_input(mutcache: Command, decoder: Path) -> None:
    assert mutcache("convert", decoder, decoder, "--max-length", "max_length").code == 0
    assert mutcache("check", decoder).code == 0


def test_refused_conversion_leaves_the_output_alone(mutcache: Command, valid: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    out.write_bytes(b"precious")
    result = mutcache("convert", valid, out, "--max-length", 8, "--format", "json")
    assert result.code == 1
    assert "already has mutable caches" in result.json["error"]["message"]
    assert out.read_bytes() == b"precious"


@pytest.mark.parametrize("out", ["missing/out.onnx", "folder"])
def test_output_that_cannot_be_written_exits_with_two(
    mutcache: Command, decoder: Path, tmp_path: Path, out: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    result = mutcache("convert", decoder, tmp_path / out, "--max-length", 8)
    assert result.code == 2
    assert result.err.startswith("mutcache: error: ")


def test_convert_keeps_external_data(mutcache: Command, tmp_path: Path) -> None:
    onnx.save(
        example_decoder.build(),
        tmp_path / "in.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    weights = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "other").mkdir()
    # In the same folder the weights stay where they are; another folder gets a copy.
    for out, files in (("out.onnx", {"out.onnx"}), ("other/out.onnx", {"out.onnx", "out.onnx.data"})):
        before = set(tmp_path.joinpath(out).parent.iterdir())
        assert mutcache("convert", tmp_path / "in.onnx", tmp_path / out, "--max-length", 24).code == 0
        assert {path.name for path in set(tmp_path.joinpath(out).parent.iterdir()) - before} == files
        assert mutcache("check", tmp_path / out).code == 0
        tensors = {tensor.name: tensor for tensor in load(tmp_path / out).graph.initializer}
        original = {tensor.name: tensor for tensor in load(tmp_path / "in.onnx").graph.initializer}
        assert all(tensors[name].raw_data == tensor.raw_data for name, tensor in original.items())
    assert (tmp_path / "weights.bin").read_bytes() == weights


# greedy


def test_greedy_prints_the_same_tokens_before_and_after(mutcache: Command, decoder: Path, tmp_path: Path) -> None:
    out = tmp_path / "mutable.onnx"
    mutcache("convert", decoder, out, "--max-length", 24, "--position-name", "valid")
    prompt = ["--prompt", 1, 5, 9, 7, "--tokens", 8]
    before = mutcache("greedy", decoder, *prompt, "--format", "json")
    after = mutcache("greedy", out, *prompt, "--position-name", "valid", "--format", "json")
    assert (before.code, after.code) == (0, 0)
    assert before.json["tokens"] == after.json["tokens"]
    assert len(after.json["tokens"]) == 8
    assert [cache["in_place"] for cache in after.json["caches"]] == [True] * 4
    text = mutcache("greedy", out, *prompt, "--position-name", "valid")
    assert text.out.split("\n")[0] == " ".join(map(str, after.json["tokens"]))


def test_greedy_refuses_what_does_not_fit(mutcache: Command, decoder: Path, valid: Path, tmp_path: Path) -> None:
    out = tmp_path / "mutable.onnx"
    mutcache("convert", decoder, out, "--max-length", 6)
    overflow = mutcache("greedy", out, "--prompt", *range(7), "--format", "json")
    assert overflow.code == 1
    assert overflow.json["error"]["requirement"] == "MC-DENSE-003"
    assert mutcache("greedy", decoder, "--prompt", 4096).code == 1  # no such token
    assert mutcache("greedy", out, "--prompt", 4096).code == 1
    assert mutcache("greedy", out, "--prompt", 1, "--position-name", "pos").code == 2
    assert mutcache("greedy", valid, "--prompt", 1).code == 2  # no decoder at all
    assert mutcache("greedy", out, "--prompt", 1 << 70).code == 2
    assert mutcache("greedy", out, "--prompt", -1).code == 2


# run


def test_run_updates_a_cache_and_writes_what_is_asked(mutcache: Command, valid: Path, tmp_path: Path) -> None:
    cache = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    np.save(tmp_path / "cache.npy", cache)
    np.save(tmp_path / "values.npy", np.full((1, 2, 2), -1, np.float32))
    result = mutcache(
        *("run", valid, "--format", "json", "--input", "cache=cache.npy", "--input", "values=values.npy"),
        *("--input", "position=1", "--output", "updated=updated.npy", "--output", "cache=after.npy"),
    )
    assert result.code == 0
    assert result.json["outputs"] == [
        {"name": "updated", "type": "FLOAT", "shape": [1, 4, 2], "storage": "cache", "file": "updated.npy"},
        {"name": "before", "type": "FLOAT", "shape": [], "storage": None, "file": None},
    ]
    expected = [[[0, 1], [-1, -1], [-1, -1], [6, 7]]]
    assert np.load(tmp_path / "updated.npy").tolist() == expected
    assert np.load(tmp_path / "after.npy").tolist() == expected
    assert np.load(tmp_path / "cache.npy").tolist() == cache.tolist()


@pytest.mark.parametrize("schedule", [(), ("--schedule", "node-order"), ("--schedule", "random:5")])
def test_run_starts_from_zeros_and_literals(mutcache: Command, valid: Path, schedule: tuple[str, ...]) -> None:
    result = mutcache(
        *("run", valid, "--zeros", "cache", "--dim", "batch=1", "--input", "values=[[[1, 2]]]"),
        *("--input", "position=3", "--output", "updated=updated.npy", *schedule),
    )
    assert result.code == 0
    assert np.load("updated.npy").tolist() == [[[0, 0], [0, 0], [0, 0], [1, 2]]]


def test_run_knows_no_such_schedule(mutcache: Command, valid: Path) -> None:
    result = mutcache("run", valid, "--schedule", "fastest")
    assert result.code == 2
    assert "there is no schedule 'fastest'" in result.err


def test_run_understands_types_that_npy_has_no_name_for(mutcache: Command, tmp_path: Path) -> None:
    model = cache_model("bfloat16")
    del model.graph.node[0]  # ReduceMax has no such type
    del model.graph.output[1]
    save(model, tmp_path / "narrow.onnx")
    values = np.array([[[1.5, -2]]], ml_dtypes.bfloat16)
    np.save(tmp_path / "values.npy", values)
    result = mutcache(
        *("run", "narrow.onnx", "--zeros", "cache", "--dim", "batch=1", "--input", "values=values.npy"),
        *("--input", "position=0", "--output", "updated=updated.npy", "--format", "json"),
    )
    assert result.code == 0
    assert result.json["outputs"][0]["type"] == "BFLOAT16"
    assert np.load(tmp_path / "updated.npy").view(ml_dtypes.bfloat16)[0, 0].tolist() == [1.5, -2]


ZEROS = ["--zeros", "cache", "--dim", "batch=1"]
VALUES = ["--input", "values=[[[1, 2]]]"]
POSITION = ["--input", "position=0"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*ZEROS, *VALUES], 2, "no value for the input 'position'"),
        ([*VALUES, *POSITION], 2, "no value for the mutable input 'cache'"),
        ([*ZEROS, *VALUES, *POSITION, "--input", "nothing=1"], 2, "no input 'nothing'"),
        ([*ZEROS, *VALUES, *POSITION, *POSITION], 2, "names 'position' twice"),
        ([*ZEROS, *VALUES, *POSITION, "--input", "cache=[]"], 2, "given twice"),
        ([*ZEROS, *VALUES, *POSITION, "--dim", "heads=2"], 2, "no symbolic dimension 'heads'"),
        ([*ZEROS, *VALUES, *POSITION, "--output", "nothing=x.npy"], 2, "no output 'nothing'"),
        ([*ZEROS, *VALUES, *POSITION, "--output", "updated=missing/x.npy"], 2, "folder does not exist"),
        ([*ZEROS, *VALUES, *POSITION, "--output", "updated=."], 2, ""),
        (["--zeros", "cache", *VALUES, *POSITION], 2, "the symbol 'batch'"),
        (["--zeros", "cache", "--dim", f"batch={2**62}", *VALUES, *POSITION], 2, "address space"),
        (["--zeros", "cache", "--dim", f"batch={2**45}", *VALUES, *POSITION], 2, "memory"),
        ([*ZEROS, *VALUES, "--input", "position=missing.npy"], 2, "position=missing.npy"),
        ([*ZEROS, *VALUES, "--input", "position=4"], 1, "MC-DENSE-003"),
        ([*ZEROS, *VALUES, "--input", "position=-1"], 1, "MC-DENSE-004"),
        ([*ZEROS, *VALUES, "--input", "position=[0]"], 1, ""),
        (["--input", "cache=wide.npy", *VALUES, *POSITION], 1, "MC-BIND-007"),
    ],
)
def test_run_refuses_what_does_not_fit(
    mutcache: Command, valid: Path, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((1, 4, 2)))
    before = sorted(tmp_path.iterdir())
    result = mutcache("run", valid, *arguments)
    assert result.code == code
    assert words in result.err
    assert sorted(tmp_path.iterdir()) == before


def test_run_of_an_invalid_model_shows_its_findings(mutcache: Command, forked: Path) -> None:
    result = mutcache("run", forked, "--format", "json")
    assert result.code == 1
    assert "MC-PROTO-003" in {each["requirement"] for each in result.json["diagnostics"]}


# req


def test_req_tells_the_requirement(mutcache: Command) -> None:
    result = mutcache("req", "mc_alias_007", "--format", "json")
    assert result.code == 0
    assert result.json["requirement"] == "MC-ALIAS-007"
    assert result.json["sentence"]
    text = mutcache("req", "MC-ALIAS-007")
    assert text.code == 0
    assert "MC-ALIAS-007" in text.out


# the command itself


def test_help_names_every_command(mutcache: Command) -> None:
    result = mutcache("--help")
    assert result.code == 0
    for command in commands():
        assert command.name in result.out
        assert mutcache(command.name, "--help").code == 0


def test_interruption_is_no_traceback(mutcache: Command, valid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> ModelProto:
        raise KeyboardInterrupt

    monkeypatch.setattr("mutcache.check.diagnose", interrupt)
    result = mutcache("check", valid)
    assert result.code == 130
    assert "interrupted" in result.err
