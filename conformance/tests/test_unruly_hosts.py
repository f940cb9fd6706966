"""Children that misbehave in the middle of a run: the case at hand is told from the next ones, and nothing is lost."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_cases import BIND_STEP, CASES, LOAD_STEP, OVERFLOW, VALID, case, run

from mutcache.requirements import Req
from mutcache_conformance.adapters import command_of
from mutcache_conformance.case import Unload
from mutcache_conformance.child import Child
from mutcache_conformance.report import read_report
from mutcache_conformance.runner import Configuration, Runner, run_case
from mutcache_conformance.status import CaseResult, Status


def configuration(folder: Path, mode: str, **limits: float) -> Configuration:
    command = [sys.executable, str(Path(__file__).with_name("unruly_host.py")), mode]
    return dataclasses.replace(Configuration(command, folder, step_timeout=20.0), **limits)  # type: ignore[arg-type]  # floats all


def results(folder: Path, mode: str, **limits: float) -> tuple[CaseResult, CaseResult]:
    with Runner(configuration(folder, mode, **limits), CASES) as runner:
        return runner.run(VALID), runner.run(OVERFLOW)


@pytest.mark.parametrize(
    ("mode", "status", "words"),
    [
        ("answer-twice", Status.FAIL, "after the last step: it does not speak the protocol: an answer to no open"),
        ("exit", Status.CRASH, "after the last step: it exited with status 5"),
        ("rename", Status.FAIL, "after the last step: it describes itself otherwise: runtime"),
        (
            "hoard-descriptors",
            Status.FAIL,
            "step 3 (run) was answered with error: ProtocolError: the message speaks of 2 descriptors, 1 came with it",
        ),
    ],
)
def test_the_case_that_it_happened_in_fails(tmp_path: Path, mode: str, status: Status, words: str) -> None:
    valid, overflow = results(tmp_path, mode)
    assert (valid.status, valid.reason[: len(words)], valid.attempts) == (status, words, 1)
    assert (overflow.status, overflow.cause) == (Status.FAIL, "the valid twin did not pass")


@pytest.mark.parametrize("mode", ["truncate", "send-descriptors", "hoard-memory", "slow"])
def test_what_does_no_harm(tmp_path: Path, mode: str) -> None:
    assert [one.reason for one in results(tmp_path, mode)] == ["", ""]


def test_a_case_has_a_time_limit_of_its_own(tmp_path: Path) -> None:
    valid, _ = results(tmp_path, "slow", case_timeout=0.2)
    assert valid.status is Status.TIMEOUT
    assert valid.reason.startswith("in step 1 (load): the case took longer than 0.2 s")


def test_after_so_many_hangs_the_rest_is_not_run(tmp_path: Path) -> None:
    cases = [case(f"toy-02{n}/again", Req.MC_DENSE_001, LOAD_STEP, BIND_STEP, run()) for n in range(3)]
    with Runner(configuration(tmp_path, "slow", step_timeout=0.1, hangs=1), {}) as runner:
        found = [runner.run(one) for one in cases]
    assert [one.status for one in found] == [Status.TIMEOUT, Status.TIMEOUT, Status.NOT_RUN]
    assert found[2].reason == "the runtime hung 2 times already"


def test_a_thousand_cases_leak_nothing(tmp_path: Path) -> None:
    brief = case("toy-060/brief", Req.MC_DENSE_001, LOAD_STEP, Unload("session"))
    settings = Configuration(command_of("toy_runtime:Toy"), tmp_path)
    child = Child(settings.command, log=tmp_path / "log")
    try:
        about = child.describe({}, timeout=20)
        assert run_case(brief, child, about, settings).status is Status.PASS
        before = _open_files(os.getpid()), _open_files(child.pid), _mappings(child.pid)
        for _ in range(1000):
            assert run_case(brief, child, about, settings).status is Status.PASS
        gc.collect()
        assert (_open_files(os.getpid()), _open_files(child.pid), _mappings(child.pid)) == before
    finally:
        child.kill()


def test_children_that_are_replaced_leak_nothing(tmp_path: Path) -> None:
    before, threads = _open_files(os.getpid()), _threads()
    for mode in ("exit", "answer-twice", "send-descriptors"):
        results(tmp_path, mode)
    assert _open_files(os.getpid()) == before
    assert _threads() == threads


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _mappings(pid: int) -> int:
    """Those of memory files of the harness."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:mutcache")


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _make_suite(folder: Path) -> None:
    (folder / "conftest.py").write_text("import test_plugin\ntest_plugin.replace_corpus(setattr)\n")
    (folder / "test_toy.py").write_text('AREA = "toy"\n\ndef test_case(conformance_case):\n    conformance_case()\n')


def test_a_worker_that_is_killed_takes_its_child_along_and_is_no_verdict(tmp_path: Path) -> None:
    _make_suite(tmp_path)
    host = f"cmd:{sys.executable} {Path(__file__).with_name('unruly_host.py')} kill-harness"
    plugins = ["-p", "mutcache_conformance.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n1", "--max-worker-restart=0", f"--runtime={host}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MUTCACHE_TEST_VICTIM": "parent"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the pytest worker that ran it was killed" in done.stdout
    assert "1 case could not be played" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_reports_only_what_it_knows(tmp_path: Path, number: signal.Signals) -> None:
    _make_suite(tmp_path)
    stale = tmp_path / "conformance-report" / "report.json"
    stale.parent.mkdir()
    stale.write_text("of an earlier run")
    plugins = ["-p", "mutcache_conformance.plugin", "-p", "no:cacheprovider"]
    logs = tmp_path / "conformance-report" / "logs"
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, "--runtime=toy_runtime:HangingOnOverflow"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A job in the background of a shell inherits that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as harness:
        deadline = time.monotonic() + 30
        while not any("asleep" in log.read_text() for log in logs.glob("*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        harness.send_signal(number)
        output, _ = harness.communicate(timeout=30)
    if number is signal.SIGTERM:  # no time to write one
        assert not stale.exists()
        return
    assert harness.returncode == 2
    assert "No verdict: not all cases were asked for, or run (the run was interrupted)" in output
    report = read_report(stale)
    assert report["claim"]["selection"] == "the run was interrupted"
    assert {profile["verdict"] for profile in report["claim"]["profiles"]} == {"no verdict"}
    assert [result["case"] for result in report["results"]] == [VALID.id]
