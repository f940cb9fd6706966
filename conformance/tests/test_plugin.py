"""``pytest --runtime=...`` as its users know it, on a small suite and a small runtime."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from toy_cases import BIND_STEP, CASES, LOAD_STEP, OPTIONAL, VALID
from toy_cases import run as toy_run

from mutcache.requirements import Profile, Req
from mutcache_conformance import cases, mustpass, provenance
from mutcache_conformance.case import RUN, Expect
from mutcache_conformance.mustpass import Required
from mutcache_conformance.report import read_report

pytest_plugins = ["pytester"]

SUITE = """
    AREA = "toy"

    def test_case(conformance_case):
        conformance_case()
"""
#: The same as the fixture below, for pytest runs in processes of their own.
CONFTEST = """
    import test_plugin
    test_plugin.replace_corpus(setattr)
"""
_HERE = Path(__file__).parent
IMPORT_PATH = os.pathsep.join(map(str, [_HERE, _HERE.parent, _HERE.parents[1] / "reference"]))
PLUGIN = ("-p", "mutcache_conformance.plugin", "-p", "no:cacheprovider")


def replace_corpus(replace: object) -> None:
    """Put the toy cases in the place of the corpus."""
    assert callable(replace)
    entries = tuple(Required(case.id, case.requirements, "") for case in CASES.values() if case is not OPTIONAL)
    replace(cases, "generate", lambda _: tuple(CASES.values()))
    replace(mustpass, "profiles", lambda: (Profile.DENSE,))
    replace(mustpass, "required_cases", lambda _: entries)
    # The suite that judges two halves of a run is one, even if its files are being worked on.
    replace(provenance, "sources_sha256", lambda: "0" * 64)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the suite, in which pytest can be run."""
    replace_corpus(monkeypatch.setattr)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(test_toy=SUITE)
    return pytester


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_inprocess(*PLUGIN, "-q", *arguments)


def text(result: pytest.RunResult) -> str:
    return result.stdout.str() + result.stderr.str()


def test_a_conformant_runtime(suite: pytest.Pytester) -> None:
    result = run(suite, "--runtime=toy_runtime:Toy")
    assert result.ret == 0, text(result)
    result.assert_outcomes(passed=5, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "1 unsupported: the runtime does not declare what the case needs: toy-006/optional",
            "*dense*conformant*5 of 5*5 pass, 1 unsupported",
        ]
    )
    folder = suite.path / "conformance-report"
    report = read_report(folder / "report.json")
    assert report["claim"]["profiles"][0]["verdict"] == "conformant"
    assert [result["case"] for result in report["results"]] == list(CASES)
    assert report["configuration"]["workers"] == 1
    tests = ET.parse(folder / "junit.xml").getroot().findall(".//testcase")
    assert [test.get("name") for test in tests] == [f"test_case[{case}]" for case in CASES]
    properties = {item.get("name"): item.get("value") for item in tests[1].iter("property")}
    assert properties == {"status": "pass", "requirements": "MC-DENSE-003"}


def test_a_runtime_that_is_not(suite: pytest.Pytester) -> None:
    result = run(suite, "--runtime=toy_runtime:Clamping")
    assert result.ret == 1
    result.assert_outcomes(passed=4, failed=1, skipped=1)
    command = "pytest -p mutcache_conformance.plugin 'test_toy.py::test_case[[]toy-002/overflow[]]'"
    result.stdout.fnmatch_lines(
        [
            "1 case fails: a run succeeded that must be refused",
            "  toy-002/overflow (MC-DENSE-003): A toy.",
            "    step 3 (run) succeeded; it must be refused in phase run",
            "    sent: run of binding 'binding' with values = FLOAT[[]2, 3, 4[]] (read-only), position = 6",
            "    came back: done, updated = FLOAT[[]2, 8, 4[]] at address 0x*",
            "    conformance-report/failures/toy-002/overflow",
            f"    $ {command} --runtime=toy_runtime:Clamping",
            "dense    not conformant  4 of 5 *",
        ]
    )
    assert "= FAILURES =" not in text(result)  # pytest's own list would say it all again
    assert text(result).count("succeeded; it must be refused") == 1
    saved = (suite.path / "conformance-report/failures/toy-002/overflow/reason.txt").read_text()
    assert "run it again with\n  pytest -p mutcache_conformance.plugin 'test_toy.py::" in saved


def test_skips_are_no_passes(suite: pytest.Pytester) -> None:
    result = run(suite, "--runtime=toy_runtime:Limited")
    assert result.ret == 1
    result.assert_outcomes(skipped=6)
    result.stdout.fnmatch_lines(["dense    not conformant  0 of 5 * 6 unsupported"])


def test_a_should_is_told_and_costs_nothing(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (LOAD_STEP, BIND_STEP, toy_run(Expect(RUN)))  # which the toy does not do
    advice = dataclasses.replace(VALID, id="toy-009/advice", requirements=(Req.MC_QUANT_004,), script=refused)
    monkeypatch.setattr(cases, "generate", lambda _: (*CASES.values(), advice))
    result = run(suite, "--runtime=toy_runtime:Toy", "-rs")
    assert result.ret == 0, text(result)
    result.assert_outcomes(passed=5, skipped=2)
    result.stdout.fnmatch_lines(
        ["*1 case fails: a run succeeded that must be refused*", "dense*conformant*5 of 5*1 fail*"]
    )
    report = read_report(suite.path / "conformance-report" / "report.json")
    assert {one["case"]: one["status"] for one in report["results"]}[advice.id] == "fail"
    assert report["claim"]["profiles"][0]["verdict"] == "conformant"


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        (("-k", "update or overflow"), "-k update or overflow"),
        (("test_toy.py::test_case[toy-001/update]", "test_toy.py::test_case[toy-002/overflow]"), "test_toy.py::"),
        (("--shard", "1/3"), "--shard 1/3"),
    ],
)
def test_a_selection_has_no_verdict_and_a_folder_of_its_own(
    suite: pytest.Pytester, arguments: tuple[str, ...], selection: str
) -> None:
    result = run(suite, "--runtime=toy_runtime:Toy", *arguments)
    assert result.ret == 0, text(result)
    result.assert_outcomes(passed=2, deselected=4 if "-k" in arguments else 0)
    report = read_report(suite.path / "conformance-report/partial/report.json")
    assert report["claim"]["selection"].startswith(selection)
    assert report["claim"]["profiles"][0]["verdict"] == "no verdict"
    assert not (suite.path / "conformance-report/report.json").exists()


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        (("--ignore=test_none.py",), "--ignore test_none.py"),
        (("--ignore-glob=*none.py",), "--ignore-glob *none.py"),
        ((), "2 cases were not collected"),
        (("-n1",), "2 cases were not collected"),
    ],
)
def test_cases_that_pytest_was_kept_from_are_a_selection_too(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], selection: str
) -> None:
    suite.makeconftest(
        textwrap.dedent(CONFTEST)
        + "def pytest_collection_modifyitems(items):\n"
        + "    items[:] = [item for item in items if 'read' not in item.name]\n"
    )
    monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
    assert suite.runpytest_subprocess(*PLUGIN, "-q", "--report=r", "--runtime=toy_runtime:Toy", *arguments).ret == 0
    claim = read_report(suite.path / "r/report.json")["claim"]
    assert (claim["selection"], claim["profiles"][0]["verdict"]) == (selection, "no verdict")


def test_a_selection_exits_for_its_own_cases(suite: pytest.Pytester) -> None:
    assert run(suite, "--runtime=toy_runtime:Clamping", "-k", "update").ret == 0
    assert run(suite, "--runtime=toy_runtime:Clamping", "-k", "overflow").ret == 1
    assert run(suite, "--runtime=toy_runtime:Limited", "-k", "update").ret == 1


def test_options_reach_the_runtime_the_report_and_the_command(suite: pytest.Pytester) -> None:
    options = [
        "--runtime=toy_runtime:Optioned",
        "--runtime-option",
        "fault=a b=c",
        "--step-timeout=7.5",
        "--case-timeout=9",
        "--nonce=12",
    ]
    result = run(suite, *options, "--report", "elsewhere", "-k", "update")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*RuntimeError: fault is a b=c",
            "*--nonce=12 --step-timeout=7.5 --case-timeout=9 '--runtime-option=fault=a b=c'",
        ]
    )
    configuration = read_report(suite.path / "elsewhere/report.json")["configuration"]
    assert configuration["options"] == {"fault": "a b=c"}
    times = configuration["step_timeout"], configuration["case_timeout"]
    assert (configuration["nonce"], *times) == (12, 7.5, 9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runtime=nonsense"], "--runtime 'nonsense' is not known: give one of reference, "),
        (["--runtime=cmd:./no-such-host"], "there is no command './no-such-host'"),
        (["--runtime=cmd:./test_toy.py"], "'./test_toy.py' is not executable: chmod +x, or name its interpreter"),
        (["--runtime=cmd:."], "'.' is a folder"),
        (["--runtime=toy_runtime:Broken"], "unavailable: it answered describe with error: OSError: no licence"),
        (["--runtime=toy_runtime:Broken", "-n1"], "unavailable: it answered describe with error: OSError: no licence"),
        (["--runtime=toy_runtime:Toy", "-k", "nothing"], "6 deselected"),
        (["--runtime=toy_runtime:Toy", "--nonce=x"], "--nonce 'x' is not a number"),
        (["--runtime=toy_runtime:Toy", "--shard=3/2"], "--shard '3/2' is not K/N"),
        (["--runtime=toy_runtime:Toy", "--step-timeout=0"], "--step-timeout '0' is not a number of seconds"),
        (["--runtime=toy_runtime:Toy", "--case-timeout=x"], "--case-timeout 'x' is not a number of seconds"),
        (["--runtime=toy_runtime:Toy", "--runtime-option=x"], "--runtime-option 'x' is not KEY=VALUE"),
        (["--runtime=toy_runtime:Toy", "--report=/dev/null/report"], "the report cannot be written to"),
        (["--runtime=toy_runtime:Toy", "--report=test_toy.py"], "the report cannot be written to"),
        (["--runtime=cmd:sleep 60", "--start-timeout=0.5"], "'cmd:sleep 60' is unavailable"),
        (["--runtime=toy_runtime:Toy", "--profile=flow"], "--profile 'flow' is not known; there are cases for dense"),
    ],
)
def test_wrong_usage_and_unavailable_runtimes_exit_with_2(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    # A process of its own: what ends pytest before its session begins is not for pytester to catch.
    suite.makeconftest(CONFTEST)
    monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
    result = suite.runpytest_subprocess(*PLUGIN, "-q", *arguments)
    assert result.ret == 2
    assert words in text(result)
    assert "Traceback" not in text(result)


def test_a_profile_may_be_claimed_alone(suite: pytest.Pytester) -> None:
    result = run(suite, "--runtime=toy_runtime:Toy", "--profile=dense")
    assert result.ret == 0
    result.assert_outcomes(passed=5, skipped=1)


def test_under_xdist_the_controller_writes_one_report(suite: pytest.Pytester) -> None:
    suite.makeconftest(CONFTEST)
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-n2", "--runtime=toy_runtime:Clamping"]
    done = subprocess.run(
        command,
        cwd=suite.path,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 4 passed, 1 skipped" in done.stdout
    report = read_report(suite.path / "conformance-report/report.json")
    assert [result["case"] for result in report["results"]] == list(CASES)
    assert report["configuration"]["workers"] == 2
    assert report["runtime"]["runtime"] == "toy"
    assert report["totals"]["pass"] == 4


def test_a_runtime_that_no_worker_can_start_again_has_a_report(suite: pytest.Pytester) -> None:
    suite.makeconftest(CONFTEST)
    # The controller tries the runtime first.
    lock = f"--runtime-option=lock={suite.path / 'lock'}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, "-n2", "--runtime=toy_runtime:Busy", lock],
        cwd=suite.path,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.count("the runtime could not be started again") == 1
    report = read_report(suite.path / "conformance-report/report.json")
    assert report["runtime"]["runtime"] == "toy"
    assert report["totals"]["not-run"] == len(CASES)
    assert report["claim"]["profiles"][0]["verdict"] == "not conformant"


def test_without_conformance_cases_it_does_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_toy="def test_other(): pass")
    result = run(suite)
    assert result.ret == 0
    assert "conformance" not in text(result)
    assert not (suite.path / "conformance-report").exists()


def test_it_costs_nothing_to_have_it_loaded() -> None:
    program = "import sys, pytest, mutcache_conformance.plugin; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
    )
    for module in ("numpy", "onnx", "jsonschema", "rich.table", "mutcache.executor", "mutcache.requirements"):
        assert f"'{module}'" not in done.stdout


def test_a_case_that_cannot_be_run_is_an_error_of_the_harness(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_toy="""
        import pytest
        AREA = "toy"

        @pytest.fixture
        def broken():
            raise OSError("disk full")

        def test_case(conformance_case, broken):
            conformance_case()
        """
    )
    result = run(suite, "--runtime=toy_runtime:Toy", "-k", "update")
    assert result.ret == 1
    (found,) = read_report(suite.path / "conformance-report/partial/report.json")["results"]
    assert (found["status"], found["reason"]) == ("harness-error", "OSError: disk full")
