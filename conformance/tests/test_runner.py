"""Cases against a small runtime that is not the reference, and what is said of its faults."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import toy_cases
from toy_cases import (
    BIND_STEP,
    CASES,
    IMMUTABLE,
    LOAD_STEP,
    OPTIONAL,
    OVERFLOW,
    READ_ONLY,
    READ_ONLY_LATE,
    VALID,
    case,
    run,
)

from mutcache.requirements import Phase, Req
from mutcache_conformance import case_json
from mutcache_conformance.adapters import command_of
from mutcache_conformance.case import LOAD, RUN, Bind, Case, Expect, Load, Release, Unload
from mutcache_conformance.evidence import Basis, Kind
from mutcache_conformance.runner import Configuration, Runner, RuntimeUnavailable
from mutcache_conformance.status import CaseResult, Status


def configuration(folder: Path, name: str, *, step_timeout: float = 20.0, restarts: int = 9) -> Configuration:
    command = command_of(f"toy_runtime:{name}")
    return Configuration(command, folder, step_timeout=step_timeout, restarts=restarts)


def results(folder: Path, name: str, *cases: Case, step_timeout: float = 20.0) -> list[CaseResult]:
    known: Mapping[str, Case] = {**CASES, **{one.id: one for one in cases}}
    with Runner(configuration(folder, name, step_timeout=step_timeout), known) as runner:
        return [runner.run(one) for one in cases]


def result(folder: Path, name: str, one: Case, *, step_timeout: float = 20.0) -> CaseResult:
    return results(folder, name, one, step_timeout=step_timeout)[0]


@pytest.mark.parametrize("name", ["Toy", "Concurrent", "Flooding"])
def test_a_sound_runtime_passes(tmp_path: Path, name: str) -> None:
    played = results(tmp_path, name, VALID, OVERFLOW, READ_ONLY, READ_ONLY_LATE, IMMUTABLE)
    assert [(one.case, one.status, one.reason) for one in played] == [
        (one.id, Status.PASS, "") for one in (VALID, OVERFLOW, READ_ONLY, READ_ONLY_LATE, IMMUTABLE)
    ]
    assert not (tmp_path / "failures").exists()


def test_evidence_tells_what_was_seen_and_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (result(tmp_path, "Toy", VALID) for _ in range(2))
    assert first.evidence.digest() == second.evidence.digest()
    steps = first.evidence.steps
    assert [(step.operation, step.answer) for step in steps] == [
        ("load", "ok"),
        ("bind", "ok"),
        ("run", "done"),
        ("run", "done"),
        ("release", "ok"),
        ("unload", "ok"),
    ]
    seen = [(one.kind, one.subject, one.basis) for one in steps[2].observations]
    assert seen == [
        (Kind.OUTPUT, "updated: form", Basis.REPORTED),
        (Kind.ADDRESS, "updated", Basis.REPORTED),
        (Kind.CONTENTS, "cache", Basis.OBSERVED),
        (Kind.UNTOUCHED, "every other byte", Basis.OBSERVED),
        (Kind.POKE, "updated", Basis.OBSERVED),
    ]
    assert all(one.holds for step in steps for one in step.observations)
    assert CaseResult.from_json(first.to_json()) == dataclasses.replace(first, duration=round(first.duration, 6))


# The cache holds 0, 1, 2, ... as float32: 8.0, element [0, 2, 0], is where the values 100.0, ... go. 100.0 is
# 00 00 c8 42 and 8.0 is 00 00 00 41 in memory.
WRITTEN = (
    r"after step 3 \(run\), byte 34 of storage 'cache' \(element \[0, 2, 0\]\) at address 0x[0-9a-f]+: "
    r"expected 0xc8 \(written by the run\), found 0x00, so the element is 8\.0 and not 100\.0"
)
ELSEWHERE = (
    r"after step 3 \(run\), output 'updated' is at address 0x[0-9a-f]+, storage 'cache', which it must alias, "
    "at 0x[0-9a-f]+"
)
SENT = "sent: run of binding 'binding' with values = FLOAT[2, 3, 4] (read-only), position = 2"


@pytest.mark.parametrize(
    ("name", "one", "words"),
    [
        ("Copying", VALID, f"{ELSEWHERE}: the output is a copy\n{WRITTEN}"),
        ("CopyingBack", VALID, f"{ELSEWHERE}: the output is a copy"),
        (
            "LyingAboutAddresses",
            VALID,
            r"byte \d+ of storage 'cache' was changed from outside, and output 'updated' does not",
        ),
        ("OffByOne", VALID, f"{WRITTEN}; 40 bytes differ\n{re.escape(SENT)}\ncame back: done, updated = FLOAT"),
        ("Clamping", OVERFLOW, r"step 3 \(run\) succeeded; it must be refused in phase run"),
        (
            "WritingBeforeChecking",
            OVERFLOW,
            r"after the refusal of step 3 \(run\), byte 98 of storage 'cache' .*: expected 0xc0 .*, found 0xc8",
        ),
        (
            "WritingPastTheEnd",
            VALID,
            r"guard byte 3 after the end of storage 'cache' at address 0x\w+: expected 0x\w\w \(untouched\)",
        ),
        ("Raising", VALID, r"step 3 \(run\) was answered with error: RuntimeError: no kernel"),
        ("Exhausting", VALID, r"step 3 \(run\) was answered with error: MemoryError\n"),
        ("RefusingRuns", VALID, r"step 3 \(run\) was rejected in phase run \(not today\); it must succeed"),
        ("Refusing", VALID, r"step 1 \(load\) was rejected in phase load \(MC-PROTO-002: I like no model\)"),
        ("AcceptingReadOnly", READ_ONLY, r"step 2 \(bind\) succeeded; it must be refused in phase bind"),
        ("AcceptingReadOnly", READ_ONLY_LATE, r"read-only storage 'cache' was accepted and written to \(SIGSEGV\)"),
        ("WrongPhase", OVERFLOW, r"rejected in phase load \(.*\), which is not the phase of the operation"),
        ("Nameless", VALID, r"the outputs are \['other'\]; the model's are \['updated'\]"),
        (
            "OtherType",
            VALID,
            r"output 'updated' is FLOAT16\[2, 8, 4\], 128 bytes; expected FLOAT\[2, 8, 4\], 256 bytes",
        ),
        ("NotUnloading", VALID, r"step 6 \(unload\) was answered with error: RuntimeError: busy"),
    ],
)
def test_a_fault_fails_with_its_reason(tmp_path: Path, name: str, one: Case, words: str) -> None:
    found = result(tmp_path, name, one)
    assert found.status is Status.FAIL
    assert re.search(words, found.reason), found.reason
    assert len(found.reason.splitlines()) <= 4
    assert found.cause
    assert not re.search(r"\d", found.cause)


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("Aborting", Status.CRASH, "in step 3 (run): it was ended by SIGABRT; its last words: the last words of a"),
        ("Exiting", Status.CRASH, "in step 6 (unload): it exited with status 7"),
        ("Hanging", Status.TIMEOUT, "in step 3 (run): no answer to run within 1 s"),
        ("Limited", Status.UNSUPPORTED, "operator CacheUpdate"),
        ("Inexpressive", Status.NOT_APPLICABLE, "binding storage"),
    ],
)
def test_other_outcomes(tmp_path: Path, name: str, status: Status, words: str) -> None:
    valid, overflow = results(tmp_path, name, VALID, OVERFLOW, step_timeout=1)
    assert (valid.status, valid.reason[: len(words)]) == (status, words)
    # The negative case earns nothing without its valid twin.
    assert overflow.status is (Status.FAIL if status.is_failure else status)
    assert overflow.reason == f"its valid twin toy-001/update did not pass ({status})"


def test_a_case_that_needs_what_is_not_declared_is_unsupported(tmp_path: Path) -> None:
    found = result(tmp_path, "Toy", OPTIONAL)
    assert (found.status, found.reason) == (Status.UNSUPPORTED, "the runtime does not declare dtype:FLOAT8E5M2")


def test_a_failure_does_not_reach_other_cases_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    negative = case("toy-010/negative", Req.MC_DENSE_004, LOAD_STEP, BIND_STEP, run(Expect(RUN)), position=-1)
    good = case("toy-011/good", Req.MC_DENSE_001, LOAD_STEP, BIND_STEP, run())
    found = results(tmp_path, "AbortingOnNegative", good, negative, VALID, good)
    assert [one.status for one in found] == [Status.PASS, Status.CRASH, Status.PASS, Status.PASS]
    assert found[0].log != found[2].log
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_after_so_many_accidents_the_rest_is_not_run(tmp_path: Path) -> None:
    cases = [case(f"toy-02{n}/again", Req.MC_DENSE_001, LOAD_STEP, BIND_STEP, run()) for n in range(4)]
    with Runner(configuration(tmp_path, "Aborting", restarts=1), {}) as runner:
        found = [runner.run(one) for one in cases]
    assert [one.status for one in found] == [Status.CRASH, Status.CRASH, Status.NOT_RUN, Status.NOT_RUN]
    assert found[2].reason == "the runtime was restarted 1 times already"


def test_a_runtime_that_went_away_in_between_is_started_again(tmp_path: Path) -> None:
    with Runner(configuration(tmp_path, "Toy"), CASES) as runner:
        assert runner.run(VALID).status is Status.PASS
        assert runner._child is not None
        os.kill(runner._child.pid, 9)
        again = runner.run(OVERFLOW)
    assert again.status is Status.PASS
    assert again.log == "main-2"
    assert again.attempts in (1, 2)  # it may be seen to be gone before the first request, or by it


@pytest.mark.parametrize("name", ["Broken", "NoSuchClass"])
def test_a_runtime_that_cannot_be_started(tmp_path: Path, name: str) -> None:
    with Runner(configuration(tmp_path, name), CASES) as runner:
        for _ in range(2):
            with pytest.raises(RuntimeUnavailable, match="it answered describe with error"):
                runner.run(VALID)


def test_the_rest_is_not_run_once_a_runtime_cannot_be_started_again(tmp_path: Path) -> None:
    busy = dataclasses.replace(configuration(tmp_path, "Busy"), options={"lock": str(tmp_path / "lock")})
    others = [case(f"toy-02{n}/again", Req.MC_DENSE_001, LOAD_STEP, BIND_STEP, run()) for n in range(2)]
    with Runner(busy, CASES) as runner:
        found = [runner.run(one) for one in (VALID, OVERFLOW, *others)]
    assert [one.status for one in found] == [Status.CRASH, Status.FAIL, Status.NOT_RUN, Status.NOT_RUN]
    assert found[3].reason == (
        "the runtime could not be started again: it answered describe with error: OSError: the device is busy"
    )


EARLY = Expect(frozenset({Phase.CHECK, Phase.BIND, Phase.RUN}))
MAYBE = Load("session", expect=Expect(LOAD, may_succeed=True))


@pytest.mark.parametrize(
    ("name", "script", "status", "answers"),
    [
        # Refused when loaded, though only the run must be: what needs the session is left out.
        (
            "Refusing",
            (LOAD_STEP, BIND_STEP, run(EARLY), Release("binding")),
            Status.PASS,
            "rejected skipped skipped skipped",
        ),
        # Refused at the last opportunity.
        ("RefusingRuns", (Load("session", expect=EARLY), BIND_STEP, run()), Status.PASS, "ok ok rejected"),
        (
            "RefusingRuns",
            (LOAD_STEP, Bind("session", "binding", {"cache": "cache"}, expect=EARLY), run()),
            Status.PASS,
            "ok ok rejected",
        ),
        # Never refused.
        ("Toy", (Load("session", expect=EARLY), BIND_STEP, run()), Status.FAIL, "ok ok done"),
        ("Toy", (Load("session", expect=EARLY), Unload("session")), Status.FAIL, "ok ok"),
        # Refused too early.
        ("Refusing", (LOAD_STEP, BIND_STEP, run(Expect(RUN))), Status.FAIL, "rejected"),
        # Refused or not, as the runtime likes; but what comes after that must succeed.
        ("Toy", (MAYBE, BIND_STEP, run()), Status.PASS, "ok ok done"),
        ("Refusing", (MAYBE, BIND_STEP, run()), Status.PASS, "rejected skipped skipped"),
        ("RefusingRuns", (MAYBE, BIND_STEP, run()), Status.FAIL, "ok ok rejected"),
    ],
)
def test_a_refusal_may_come_in_any_of_its_phases(
    tmp_path: Path, name: str, script: tuple[Load, Bind], status: Status, answers: str
) -> None:
    found = result(tmp_path, name, case("toy-030/phases", Req.MC_SHAPE_005, *script))
    assert found.status is status, found.reason
    assert [step.answer for step in found.evidence.steps] == answers.split()
    assert found.phase_observed == next((s.operation for s in found.evidence.steps if s.answer == "rejected"), "")


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (case("toy-040/x", Req.MC_DENSE_001, LOAD_STEP, BIND_STEP, run(), position=7), "the oracle refuses it"),
        (case("toy-041/x", Req.MC_DENSE_001, BIND_STEP), "'session', which there is not"),
        (dataclasses.replace(VALID, id="toy-042/x", storages=()), "'cache', which there is not"),
        (dataclasses.replace(OVERFLOW, id="toy-043/x", twin="toy-099/none"), "there is no case 'toy-099/none'"),
    ],
)
def test_a_case_that_cannot_be_played_is_no_fault_of_the_runtime(tmp_path: Path, one: Case, words: str) -> None:
    found = result(tmp_path, "LaxToy", one)
    assert found.status is Status.HARNESS_ERROR
    assert words in found.reason


def test_a_failing_case_is_saved_with_both_sides(tmp_path: Path) -> None:
    found = result(tmp_path, "OffByOne", VALID)
    folder = tmp_path / found.failure
    assert found.failure == "failures/toy-001/update"
    assert case_json.load(folder) == VALID
    before = (folder / "cache.bin").read_bytes()
    expected, seen = ((folder / f"compared/cache.{side}.bin").read_bytes() for side in ("expected", "found"))
    assert before == toy_cases.storages(2)[0].content
    assert expected[: 8 * 4] == seen[: 8 * 4] == before[: 8 * 4]
    assert expected[8 * 4 : 20 * 4] == seen[12 * 4 : 24 * 4] != before[8 * 4 : 20 * 4]
    assert found.reason in (folder / "reason.txt").read_text()
    compared = {one["subject"]: one for one in json.loads((folder / "compared.json").read_text())}
    assert compared["cache"]["first_difference"] == {"byte": 34, "expected": 0xC8, "found": 0}
    assert compared["cache"]["differing_bytes"] == 40
    assert compared["values"]["differing_bytes"] == 0
    conversation = (folder / "conversation.txt").read_text().splitlines()
    assert [line[:1] for line in conversation] == list("><><><<><")
    assert json.loads(conversation[4][2:])["op"] == "run"
    assert json.loads(conversation[6][2:])["answer"] == "done"


def test_outputs_that_are_wrong_are_saved_too(tmp_path: Path) -> None:
    folder = tmp_path / result(tmp_path, "Stale", VALID).failure
    compared = json.loads((folder / "compared.json").read_text())[-1]
    assert compared["subject"] == "updated"
    expected, seen = ((folder / compared[side]).read_bytes() for side in ("expected", "found"))
    at = compared["first_difference"]["byte"]
    assert len(expected) == len(seen) == 256
    assert expected[:at] == seen[:at]
    assert (expected[at], seen[at]) == (compared["first_difference"]["expected"], compared["first_difference"]["found"])


def test_a_case_that_cannot_be_saved_fails_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "failures").touch()
    found = result(tmp_path, "OffByOne", VALID)
    assert (found.status, found.failure) == (Status.FAIL, "")
    assert found.reason.endswith("Not a directory: '" + str(tmp_path / "failures/toy-001/update") + "')")
