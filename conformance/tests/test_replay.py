"""A saved case runs again from nothing but its folder."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_cases import CASES, OVERFLOW, VALID

from mutcache_conformance import case_json, replay
from mutcache_conformance.adapters import command_of
from mutcache_conformance.runner import Configuration, Runner


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A negative case as it failed, moved away from its report."""
    with Runner(Configuration(command_of("toy_runtime:Clamping"), tmp_path / "report"), CASES) as runner:
        result = runner.run(OVERFLOW)
    folder = tmp_path / "elsewhere"
    shutil.move(tmp_path / "report" / result.failure, folder)
    shutil.rmtree(tmp_path / "report")
    return folder


def test_it_has_its_twin(saved: Path) -> None:
    assert case_json.load(saved) == OVERFLOW
    assert case_json.load(saved / "twin") == VALID


def test_it_fails_as_it_did(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(saved), "--runtime=toy_runtime:Clamping"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("fail toy-002/overflow (MC-DENSE-003): A toy.\n  step 1 load: ok\n")
    assert "  step 3 run (may be refused: run): done\n" in output
    assert "  step 3 (run) succeeded; it must be refused in phase run\n  sent: run of binding" in output
    again = saved / "replay" / "failures" / OVERFLOW.id
    assert case_json.load(again) == OVERFLOW


def test_it_shows_both_sides_of_a_comparison(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case_json.save(VALID, saved)
    assert replay.main([str(saved), "--runtime=toy_runtime:OffByOne"]) == 1
    output = capsys.readouterr().out
    assert "    ok    address of updated: storage 'cache' (reported)\n" in output
    assert "    WRONG contents of cache: expected " in output


def test_without_its_twin_it_earns_nothing(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(saved), "--runtime=toy_runtime:Refusing"]) == 1
    output = capsys.readouterr().out
    assert "its valid twin toy-001/update did not pass (fail)" in output
    assert "fail toy-001/update (MC-DENSE-001)" in output


def test_a_sound_runtime_passes_in_a_process_of_its_own(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mutcache_conformance.replay", str(saved), "--runtime=toy_runtime:Toy"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pass toy-002/overflow")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere is no folder of a saved case: "),
        ([".", "--runtime=nonsense"], "--runtime 'nonsense' is not known"),
        ([".", "--runtime-option=x"], "--runtime-option 'x' is not KEY=VALUE"),
        ([".", "--step-timeout=0"], "0 is not a number of seconds"),
        ([".", "--case-timeout=nan"], "nan is not a number of seconds"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        replay.main(arguments)
    assert exit_.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2}', "{", "[" * 100_000])
def test_a_folder_that_is_none(saved: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (saved / "case.json").write_text(text)
    with pytest.raises(SystemExit):
        replay.main([str(saved)])
    assert "is no folder of a saved case" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../../../pwned", "/pwned", "..", "a/b", "", "cache\n", "caché", "a\\b"])
@pytest.mark.parametrize("of", ["storages", "models", "tables"])
def test_no_name_leads_out_of_the_folder(saved: Path, capsys: pytest.CaptureFixture[str], of: str, name: str) -> None:
    data = json.loads((saved / "case.json").read_text())
    if of == "storages":
        data["storages"][0]["name"] = name
    elif of == "models":
        data["models"] = {name: next(iter(data["models"].values()))}
    else:
        data["tables"] = [{"name": name, "container": "map", "budget": None, "pages": []}]
    (saved / "case.json").write_text(json.dumps(data))
    before = {path: path.read_bytes() for path in saved.parent.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit):
        replay.main([str(saved), f"--out={saved / 'again'}"])
    assert "case.json is no case: $." in capsys.readouterr().err
    assert {path: path.read_bytes() for path in saved.parent.rglob("*") if path.is_file()} == before


def test_half_a_character_is_no_text(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((saved / "case.json").read_text())
    (saved / "case.json").write_text(json.dumps({**data, "title": "\ud800"}))
    with pytest.raises(SystemExit):
        replay.main([str(saved)])
    assert "surrogates not allowed" in capsys.readouterr().err


@pytest.mark.parametrize("id_", ["toy-002/..", "toy-002/.", "toy-002/../x", "toy-002/x\n", "/x"])
def test_no_case_lies_elsewhere(saved: Path, capsys: pytest.CaptureFixture[str], id_: str) -> None:
    data = json.loads((saved / "case.json").read_text())
    (saved / "case.json").write_text(json.dumps({**data, "id": id_}))
    with pytest.raises(SystemExit):
        replay.main([str(saved)])
    assert "case.json is no case: $.id" in capsys.readouterr().err


def test_what_a_case_says_cannot_steer_a_terminal(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((saved / "case.json").read_text())
    (saved / "case.json").write_text(json.dumps({**data, "title": "\x1b[2Jpass"}))
    assert replay.main([str(saved), "--runtime=toy_runtime:Clamping"]) == 1
    assert "(MC-DENSE-003): \N{REPLACEMENT CHARACTER}[2Jpass\n" in capsys.readouterr().out


def test_a_runtime_that_cannot_be_started(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(saved), "--runtime=toy_runtime:Broken"]) == 2
    assert "is unavailable: it answered describe with error: OSError: no licence" in capsys.readouterr().err


def test_a_case_can_be_saved_with_any_names(tmp_path: Path) -> None:
    case = dataclasses.replace(VALID, twin="")
    case_json.save(case, tmp_path)
    assert replay.main([str(tmp_path), "--runtime=toy_runtime:Toy"]) == 0
