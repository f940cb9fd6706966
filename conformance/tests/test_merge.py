"""The parts of one run make one report, and nothing else does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_plugin import replace_corpus, run, suite
from toy_cases import CASES

from mutcache_conformance import manifest, merge, report
from mutcache_conformance.merge import MergeError
from mutcache_conformance.report import read_report

__all__ = ["suite"]  # the fixture
pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole parts: ``part-1`` to ``part-3``, and ``whole``."""
    return tmp_path_factory.mktemp("parts")


@pytest.fixture
def made(suite: pytest.Pytester, parts: Path, tmp_path: Path) -> Path:
    """A copy of these, made when the first test needs them."""
    if not any(parts.iterdir()):
        for shard in ("1/3", "2/3", "3/3"):
            run(suite, "--runtime=toy_runtime:Clamping", f"--shard={shard}", f"--report={parts / f'part-{shard[0]}'}")
        run(suite, "--runtime=toy_runtime:Clamping", f"--report={parts / 'whole'}")
    return Path(shutil.copytree(parts, tmp_path / "parts"))


def folders(made: Path) -> list[Path]:
    return [made / f"part-{number}" for number in (2, 3, 1)]


def problems(folders: list[Path], out: Path) -> str:
    with pytest.raises(MergeError) as caught:
        merge.merge(folders, out)
    assert not out.exists()
    assert not list(out.parent.glob(f".{out.name}*"))
    return "\n".join(caught.value.problems)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a report, and all that vouches for it."""
    path = folder / "report.json"
    body = json.loads(path.read_text(encoding="utf-8"))
    del body["footer"]
    change(body)
    path.write_text(report.text_of({**body, "footer": report.footer(body)}), encoding="utf-8")
    manifest.write(folder)


def test_the_parts_make_the_report_of_the_whole(made: Path) -> None:
    merged = merge.merge(folders(made), made / "out")
    assert not merged.succeeded
    found, whole = read_report(made / "out/report.json"), read_report(made / "whole/report.json")
    for key in ("claim", "product", "runtime", "not_run", "totals", "requirements", "uncovered", "waivers"):
        assert found[key] == whole[key]
    assert [one["case"] for one in found["results"]] == list(CASES)
    for one, other in zip(found["results"], whole["results"], strict=True):
        # A reason can name an address.
        assert {key for key in one if one[key] != other[key]} <= {"duration", "log", "rerun", "reason"}
        assert not one["log"] or (made / "out/logs").is_dir() or not (made / "whole/logs").is_dir()
        assert not one["failure"] or (made / "out" / one["failure"] / "case.json").is_file()
    assert manifest.problems(made / "out") == []
    named = found["configuration"]["parts"]
    assert [part["shard"] for part in named] == ["1/3", "2/3", "3/3"]
    assert named[1]["report_sha256"] == read_report(made / "part-2/report.json")["footer"]["sha256"]
    assert found["configuration"]["shard"] == "1/1"


def test_a_folder_in_a_part(made: Path) -> None:
    assert "lies in" in problems(folders(made), made / "part-1/in")
    assert manifest.problems(made / "part-1") == []


def test_a_part_whose_verdicts_do_not_follow_from_its_evidence(made: Path) -> None:
    def flip(body: dict[str, Any]) -> None:
        (result,) = [one for one in body["results"] if one["status"] == "fail"]
        result |= {"status": "pass", "reason": "", "cause": "", "failure": ""}

    failing = next(one for one in folders(made) if read_report(one / "report.json")["totals"]["fail"])
    rewritten(failing, flip)
    assert f"{failing} is not sound: evidence: toy-002/overflow: the status is pass" in problems(
        folders(made), made / "out"
    )


def test_waivers_may_be_read_on_different_days(made: Path) -> None:
    waiver = {"cases": ["toy-001/update"], "reason": "r", "issue": "https://example.org/1", "expires": "2026-01-02"}
    for folder, day in zip(folders(made), ("2026-01-01", "2026-01-02", "2026-01-02"), strict=True):
        rewritten(folder, partial(dict.update, waivers=[{**waiver, "read": day}]))
    assert merge.merge(folders(made), made / "out").waivers[0]["expires"] == "2026-01-02"


def test_a_missing_part(made: Path) -> None:
    assert problems(folders(made)[:2], made / "out") == "part 1/3 is missing"


def test_a_part_twice(made: Path) -> None:
    said = problems([*folders(made), made / "part-2"], made / "out")
    assert said.startswith("part 2/3 is there 2 times: ")


def test_a_whole_report_is_no_part(made: Path) -> None:
    assert "is no part: it was made without --shard" in problems([*folders(made), made / "whole"], made / "out")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body["configuration"].update(nonce=7), "nonce: 0 in"),
        (lambda body: body["configuration"].update(step_timeout=7), "step timeout: 30.0 in"),
        (lambda body: body["configuration"].update(options={"a": "b"}), "runtime options: {} in"),
        (lambda body: body["configuration"].update(order="random:7"), "case order: suite in"),
        (lambda body: body["configuration"].update(shard="3/4"), "the parts are of 3 and of 4"),
        (lambda body: body["runtime"].update(runtime_version="9"), "runtime: {"),
        (lambda body: body["suite"].update(cases_sha256="0" * 64), "suite: {"),
        (lambda body: body["environment"]["packages"].update(numpy="1"), "packages: {"),
        (lambda body: body["claim"].update(selection="--shard 3/3, the run was interrupted"), "is not all of part 3/3"),
        (lambda body: body["results"].pop(), "lacks 1 of its cases, toy-006/optional among them"),
        (lambda body: body["results"].append(body["results"][0]), "has a case twice"),
        (
            lambda body: body["results"].append({**body["results"][0], "case": "toy-001/update"}),
            "has cases that are not its own, toy-001/update among them",
        ),
    ],
)
def test_parts_of_different_runs(made: Path, change: Callable[[dict[str, Any]], object], words: str) -> None:
    rewritten(made / "part-3", change)
    assert words in problems(folders(made), made / "out")


def test_a_part_that_was_tampered_with(made: Path) -> None:
    path = made / "part-2/report.json"
    path.write_text(path.read_text().replace('"fail"', '"pass"'))
    (made / "part-3/note.txt").touch()
    (made / "part-1/report.json").unlink()
    said = problems(folders(made), made / "out")
    assert "part-2/report.json is not what its footer says" in said
    assert "note.txt is not in the manifest" in said
    assert "part-1/report.json cannot be read" in said


def test_another_version_of_the_suite(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_corpus(monkeypatch.setattr)
    for folder in folders(made):
        rewritten(folder, lambda body: body["suite"].update(mustpass_sha256={"dense": "0" * 64}))
    assert "another version of the suite: mustpass_sha256" in problems(folders(made), made / "out")


def test_what_is_there_is_not_overwritten(made: Path) -> None:
    (made / "out").mkdir()
    (made / "out/mine").touch()
    with pytest.raises(OSError, match="not empty"):
        merge.merge(folders(made), made / "out")
    assert [path.name for path in (made / "out").iterdir()] == ["mine"]
