"""The suite passes every runtime that conforms, however oddly it goes about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_table import cases_of, runner
from hooked_runtime import Sound
from odd_runtimes import REFUSING, WORKING, CoreTypesOnly, HasHelpers, Noisy, RefusesEarly, RefusesLate

from mutcache_conformance.status import Status

CASES = list(cases_of(0).values())
#: A part of the cases that has some of every area; their valid twins run with them.
PART = [*CASES[::20], *(case for case in CASES if case.id.startswith(("plan-006/", "dense-001/")))]


@pytest.mark.parametrize("adapter", REFUSING, ids=lambda adapter: adapter.__name__)
def test_a_runtime_that_refuses_in_its_own_way_passes_every_case(adapter: type[Sound], tmp_path: Path) -> None:
    with runner(adapter, tmp_path) as odd:
        results = [odd.run(case) for case in CASES]
    assert [(one.case, one.status, one.reason) for one in results if one.status is not Status.PASS] == []


def refusal(adapter: type[Sound], case: str, folder: Path) -> tuple[str, str]:
    """The operation that refuses a case, and the phase that it names."""
    with runner(adapter, folder / adapter.__name__) as odd:
        steps = odd.run(cases_of(0)[case]).evidence.steps
    return next((step.operation, step.phase) for step in steps if step.answer == "rejected")


@pytest.mark.parametrize(("case", "soon"), [("shape-005/by-one", "load"), ("bind-004/same-storage", "bind")])
def test_the_late_one_is_late(case: str, soon: str, tmp_path: Path) -> None:
    assert refusal(Sound, case, tmp_path)[0] == soon
    assert refusal(RefusesLate, case, tmp_path) == ("run", "run")


def test_the_early_one_is_early(tmp_path: Path) -> None:
    assert refusal(Sound, "bind-001/bound-and-fed", tmp_path) == ("run", "run")
    assert refusal(RefusesEarly, "bind-001/bound-and-fed", tmp_path) == ("run", "bind")


@pytest.mark.parametrize("adapter", WORKING, ids=lambda adapter: adapter.__name__)
def test_a_runtime_that_works_in_its_own_way_passes(adapter: type[Sound], tmp_path: Path) -> None:
    with runner(adapter, tmp_path) as odd:
        results = [odd.run(case) for case in PART if adapter is not CoreTypesOnly or not case.needs]
        assert odd.describe().runtime == adapter.__name__
    assert [(one.case, one.status, one.reason) for one in results if one.status is not Status.PASS] == []


def test_types_that_are_not_declared_are_unsupported_and_no_failure(tmp_path: Path) -> None:
    with runner(CoreTypesOnly, tmp_path) as odd:
        results = [odd.run(case) for case in CASES if case.needs]
    assert {result.status for result in results} == {Status.UNSUPPORTED}
    assert not any(case.required for case in CASES if case.needs)


def test_noise_is_kept_as_a_log(tmp_path: Path) -> None:
    with runner(Noisy, tmp_path) as odd:
        assert odd.run(cases_of(0)["dense-001/first-rows"]).status is Status.PASS
    logs = {path.name: path.read_bytes() for path in (tmp_path / "logs").iterdir()}
    assert sorted(logs) == ["main-1.stderr.txt", "main-1.stdout.txt"]
    assert all(b'{"id": 1, "answer": "ok"}' in log for log in logs.values())


def test_helpers_end_with_the_runtime(tmp_path: Path) -> None:
    def helpers() -> list[Path]:
        return [path for path in Path("/proc").glob("[0-9]*") if b"time.sleep(3600)" in command_line(path)]

    before = helpers()
    with runner(HasHelpers, tmp_path) as odd:
        odd.describe()
        assert len(helpers()) == len(before) + 1
    assert [path for path in helpers() if path not in before] == []


def command_line(process: Path) -> bytes:
    """The command line of a process, or nothing if it has ended by now."""
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
