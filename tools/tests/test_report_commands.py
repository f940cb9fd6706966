"""The commands about reports and cases: what they print, and how they exit."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import toy_cases
from test_report import CONFIGURATION, finished, outcome
from toy_cases import CASES, OVERFLOW, READ_ONLY, VALID

from mutcache.requirements import Profile
from mutcache_conformance import cases, mustpass, report
from mutcache_conformance.adapters import command_of
from mutcache_conformance.mustpass import Required
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.schema import validate
from mutcache_conformance.status import CaseResult, Status

if TYPE_CHECKING:
    from command_runs import Command

pytest_plugins = ("command_runs",)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that tests look for are not broken."""
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(autouse=True)
def _toy_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(Required(case.id, case.requirements, "") for case in (VALID, OVERFLOW, READ_ONLY))
    monkeypatch.setattr(mustpass, "required_cases", lambda _: entries)
    monkeypatch.setattr(mustpass, "profiles", lambda: (Profile.DENSE,))


@pytest.fixture
def toy_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "generate", lambda _=0: tuple(CASES.values()))


def write(folder: str, *results: CaseResult, selection: str = "") -> None:
    report.write(finished(*results, selection=selection), Path(folder))


GOOD = (outcome(VALID.id), outcome(OVERFLOW.id), outcome(READ_ONLY.id))
BAD = (outcome(VALID.id), outcome(OVERFLOW.id, Status.FAIL, "<it> clamped\nand more"), outcome(READ_ONLY.id))


def test_without_what_the_suite_needs_the_command_says_what_to_install(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["jsonschema"] = None
from mutcache_tools.cli import main
sys.exit(main(sys.argv[1:]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "compare", "a", "b"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 2
    assert "the package 'jsonschema' is not installed" in done.stderr
    assert "pip install 'mutcache[conformance]'" in done.stderr
    assert "Traceback" not in done.stderr


# compare


def test_compare_two_reports(mutcache: Command) -> None:
    write("a", *GOOD)
    write("b", *BAD)
    broken = mutcache("compare", "a", "b", "--html", "c.html")
    assert broken.code == 1
    assert "broken  toy-002/overflow  MC-DENSE-003  pass -> fail  <it> clamped" in broken.out
    assert "dense: conformant (3 of 3) -> not conformant (2 of 3)" in broken.out
    assert "1 case is broken. 2 cases are as before." in broken.out
    page = Path("c.html").read_text(encoding="utf-8")
    assert "&lt;it&gt; clamped" in page
    assert "<it>" not in page
    assert "http" not in page.replace("http-equiv", "")  # it needs nothing from elsewhere

    fixed = mutcache("compare", "b/report.json", "a/report.json", "--format", "json")
    assert fixed.code == 0
    validate(fixed.json, "comparison")
    assert (fixed.json["totals"]["fixed"], fixed.json["is_broken"]) == (1, False)

    same = mutcache("compare", "a", "a")
    assert same.code == 0
    assert "Nothing has changed. 3 cases are as before." in same.out


def test_compare_refuses_what_is_no_report(mutcache: Command) -> None:
    write("a", *GOOD)
    path = Path("a/report.json")
    path.write_text(path.read_text().replace('"pass"', '"fail"', 1))
    Path("empty").mkdir()
    for other, words in (("a", "is not what its footer says"), ("empty", "cannot be read"), ("none", "cannot be read")):
        refused = mutcache("compare", other, other)
        assert refused.code == 2
        assert words in refused.err


def test_a_report_has_badges(mutcache: Command) -> None:
    del mutcache
    write("a", *BAD)
    (svg,) = Path("a/badges").iterdir()
    assert svg.name == "dense.svg"
    assert ET.parse(svg).getroot().get("aria-label") == "mutcache dense: not conformant 2/3"


# merge


def parts(runtime: str = "toy_runtime:Toy", count: int = 2) -> list[str]:
    """Run the parts of a run, and write their reports."""
    folders = [Path(f"part-{index}") for index in range(1, count + 1)]
    for index, folder in enumerate(folders):
        with Runner(Configuration(command_of(runtime), folder), CASES) as runner:
            results = {case.id: runner.run(case) for case in tuple(CASES.values())[index::count]}
            about = runner.describe()
        shard = f"{index + 1}/{count}"
        run = dataclasses.replace(
            finished(*results.values(), selection=f"--shard {shard}"),
            runtime=runtime,
            about=about,
            configuration={**CONFIGURATION, "shard": shard},
        )
        report.write(run, folder)
    return list(map(str, folders))


@pytest.mark.usefixtures("toy_corpus")
def test_merge_parts(mutcache: Command) -> None:
    merged = mutcache("merge", *parts(), "--out", "whole")
    assert merged.code == 0, merged.err
    assert "dense    conformant  3 of 3" in merged.out
    assert [one["case"] for one in report.read_report(Path("whole/report.json"))["results"]] == list(CASES)
    shutil.rmtree("whole")
    told = mutcache("merge", *parts("toy_runtime:Clamping"), "--out", "whole", "--format", "json")
    assert (told.code, told.json["profiles"][0]["verdict"]) == (1, "not conformant")


@pytest.mark.usefixtures("toy_corpus")
def test_merge_refuses_what_are_not_the_parts_of_a_run(mutcache: Command) -> None:
    refused = mutcache("merge", parts()[0], "--out", "whole")
    assert (refused.code, Path("whole").exists()) == (2, False)
    assert "these are not the parts of one run:\n  - part 2/2 is missing" in refused.err
    Path("whole").mkdir()
    Path("whole/mine").touch()
    refused = mutcache("merge", *parts(), "--out", "whole")
    assert refused.code == 2
    assert "'whole' is there already" in refused.err


# smoke


def test_smoke(mutcache: Command) -> None:
    well = mutcache("smoke", "--runtime=toy_runtime:Toy")
    assert well.code == 0, well.out
    assert "toy_runtime:Toy: speaks the protocol" in well.out
    host = f"cmd:{sys.executable} {Path(toy_cases.__file__).with_name('garbage_host.py')} exit"
    badly = mutcache("smoke", "--runtime", host, "--format", "json")
    assert badly.code == 1
    assert badly.json["speaks"] is False
    assert badly.json["checks"][-1]["what"] == "describes itself"
    assert badly.json["checks"][-1]["log"] == ["no licence"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runtime=nonsense"], "'nonsense' is not known"),
        (["--runtime=cmd:./no-such-host"], "there is no command './no-such-host'"),
        (["--runtime=reference", "--start-timeout=0"], "0 is not a number of seconds"),
        (["--runtime=reference", "--runtime-option=x"], "expected NAME=VALUE"),
        ([], "required: --runtime"),
    ],
)
def test_smoke_refuses_wrong_usage(mutcache: Command, arguments: list[str], words: str) -> None:
    refused = mutcache("smoke", *arguments)
    assert refused.code == 2
    assert words in refused.err


# export


def test_export_and_check(mutcache: Command) -> None:
    made = mutcache("export", "corpus", "--case", "dense-003/by-one", "--nonce", "7")
    assert made.code == 0, made.err
    assert "corpus: 2 cases" in made.out  # with its valid twin
    assert Path("corpus/cases/dense-003/by-one/expected.json").is_file()
    played = mutcache("export", "--check", "corpus", "--runtime", "reference", "--format", "json")
    assert played.code == 0, played.out
    assert set(played.json["results"].values()) == {"pass"}
    assert (played.json["cases"], played.json["problems"]) == (2, [])
    failed = mutcache("export", "--check", "corpus", "--runtime", "toy_runtime:Clamping", "--case", "dense-003/by-one")
    assert failed.code == 1
    assert "fail dense-003/by-one" in failed.out
    Path("corpus/README.md").unlink()
    changed = mutcache("export", "--check", "corpus")
    assert changed.code == 1
    assert "README.md is missing" in changed.out


def test_a_damaged_case_is_named_beside_all_else(mutcache: Command) -> None:
    assert mutcache("export", "corpus", "--case", "dense-003/by-one", "--case", "dense-004/minus-one").code == 0
    Path("corpus/README.md").unlink()
    Path("corpus/cases/dense-003/by-one/case.json").write_text("{")
    Path("corpus/cases/dense-004/minus-one/cache.bin").write_text("x")
    checked = mutcache("export", "--check", "corpus", "--runtime", "reference")
    assert checked.code == 1
    for words in (
        "README.md is missing",
        "corpus/cases/dense-003/by-one/case.json is no case: ",
        "corpus/cases/dense-004/minus-one/cache.bin is not the file that case.json names",
    ):
        assert words in checked.out
    Path("corpus/corpus.json").write_text("{")
    broken = mutcache("export", "--check", "corpus")
    assert broken.code == 2
    assert "corpus/corpus.json: " in broken.err


def test_export_refuses_wrong_usage(mutcache: Command) -> None:
    Path("full").mkdir()
    Path("full/mine").touch()
    for arguments, words in (
        (["full"], "'full' is there already"),
        (["new", "--case", "nothing/*"], "no case fits 'nothing/*'"),
        (["new", "--nonce=-1"], "must be a number from 0"),
        (["new", "--nonce=x"], "invalid nonce value"),
        (["new", "--runtime=reference"], "--runtime is for --check"),
        (["--check", "full"], "manifest.json cannot be read"),
        (["--check", "none"], "cannot be read"),
    ):
        refused = mutcache("export", *arguments)
        assert refused.code == 2, arguments
        assert words in refused.err
    assert not Path("new").exists()
