"""Judging evidence: what no play can have left is refused, and figures of memory are computed again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from toy_cases import CASES, OPTIONAL, OVERFLOW, READ_ONLY, READ_ONLY_LATE, VALID

from mutcache_conformance import recollection
from mutcache_conformance.adapter import DEVICE_MEMORY, Description
from mutcache_conformance.adapters import command_of
from mutcache_conformance.case import Bind, Case, Measure, Start, Storage
from mutcache_conformance.evidence import Basis, Evidence, Kind, Observation, StepRecord
from mutcache_conformance.figures import PER_RUN, SLOPE, WORKSPACE, Figures, SessionFigures, findings
from mutcache_conformance.judgement import UnsoundEvidence, judge, judge_unplayed, may_still_fail
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.status import CaseResult, Status

MIB = 1 << 20
ABOUT = Description("r", "", "a", "", alignment=1)
#: The same with caches on a device.
ELSEWHERE = dataclasses.replace(ABOUT, device="cuda:0")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, CaseResult]]:
    """What the toy cases come to on several toys."""
    made = {}
    for name in ("Toy", "OffByOne", "Clamping", "Raising", "Aborting", "AcceptingReadOnly", "Inexpressive", "Copying"):
        configuration = Configuration(command_of(f"toy_runtime:{name}"), tmp_path_factory.mktemp(name))
        with Runner(configuration, CASES) as runner:
            made[name] = {case.id: runner.run(case) for case in CASES.values()}
    return made


def test_evidence_says_what_the_run_said(results: dict[str, dict[str, CaseResult]]) -> None:
    statuses = set()
    for of_toy in results.values():
        for result in of_toy.values():
            if result.evidence.steps:
                statuses.add(result.status)
                assert judge(CASES[result.case], result.evidence) is result.status
                recollection.check(CASES[result.case], result.evidence, ABOUT)
    assert statuses >= {Status.PASS, Status.FAIL, Status.CRASH, Status.NOT_APPLICABLE}


def _copy(result: CaseResult) -> Evidence:
    return Evidence.from_json(result.evidence.to_json())


def _drop_first(evidence: Evidence) -> None:
    del evidence.steps[0]


def _drop_last(evidence: Evidence) -> None:
    del evidence.steps[-1]


def _more(evidence: Evidence) -> None:
    evidence.steps += [StepRecord(len(VALID.script), "release", answer="ok")] * 2


def _crash_in_the_middle(evidence: Evidence) -> None:
    evidence.steps[2].answer = "crash"


def _silence_in_the_middle(evidence: Evidence) -> None:
    evidence.steps[2].answer = ""


def _unseen(evidence: Evidence) -> None:
    evidence.steps[2].observations.clear()


def _allowed(evidence: Evidence) -> None:
    evidence.steps[2].allowed = ("run",)


def _skipped(evidence: Evidence) -> None:
    evidence.steps[2].answer = "skipped"


def _wrong_word(evidence: Evidence) -> None:
    evidence.steps[2].answer = "ok"


def _phase_without_refusal(evidence: Evidence) -> None:
    evidence.steps[2].phase = "run"


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (_drop_first, "step 1 is recorded as step 2"),
        (_drop_last, "it ends after step 5 of 6"),
        (_more, "there is a step after the last one"),
        (_crash_in_the_middle, r"step 3 ended the case \(crash\), and yet"),
        (_silence_in_the_middle, "step 3 has no answer, and yet"),
        (_unseen, "nobody looked at memory after it"),
        (_allowed, "step 3 may be refused in"),
        (_skipped, "is not moot"),
        (_wrong_word, "cannot be answered with 'ok'"),
        (_phase_without_refusal, "in phase 'run'"),
    ],
)
def test_what_no_play_can_leave(
    results: dict[str, dict[str, CaseResult]], forge: Callable[[Evidence], None], words: str
) -> None:
    evidence = _copy(results["Toy"][VALID.id])
    forge(evidence)
    with pytest.raises(UnsoundEvidence, match=words):
        judge(VALID, evidence)


def _observation(evidence: Evidence, kind: Kind) -> tuple[list[Observation], int]:
    observations = evidence.steps[2].observations
    return observations, next(n for n, one in enumerate(observations) if one.kind is kind)


@pytest.mark.parametrize("kind", [Kind.CONTENTS, Kind.POKE, Kind.OUTPUT])
@pytest.mark.parametrize("what", ["digest", "subject", "gone"])
def test_what_the_harness_looks_at_is_worked_out_again(
    results: dict[str, dict[str, CaseResult]], kind: Kind, what: str
) -> None:
    evidence = _copy(results["Toy"][VALID.id])
    observations, at = _observation(evidence, kind)
    one = observations[at]
    if what == "digest":
        observations[at] = dataclasses.replace(one, expected="0" * 16, found="0" * 16)
    elif what == "subject":
        observations[at] = dataclasses.replace(one, subject="another")
    else:
        del observations[at]
    assert judge(VALID, evidence) is Status.PASS  # for all that it says
    with pytest.raises(UnsoundEvidence, match=r"step 3 \(run\): "):
        recollection.check(VALID, evidence, ABOUT)


def test_nobody_sees_memory_of_a_device(results: dict[str, dict[str, CaseResult]]) -> None:
    evidence = _copy(results["Toy"][VALID.id])
    with pytest.raises(UnsoundEvidence, match=r"observed\), and it must be .*reported"):
        recollection.check(VALID, evidence, ELSEWHERE)
    for record in evidence.steps:
        record.observations = [dataclasses.replace(one, basis=Basis.REPORTED) for one in record.observations]
    recollection.check(VALID, evidence, ELSEWHERE)
    with pytest.raises(UnsoundEvidence, match=r"reported\), and it must be .*observed"):
        recollection.check(VALID, evidence, ABOUT)


def test_evidence_of_another_case_is_not_this_ones(results: dict[str, dict[str, CaseResult]]) -> None:
    evidence = results["Toy"][VALID.id].evidence
    other = dataclasses.replace(
        VALID,
        storages=tuple(dataclasses.replace(one, content=bytes(len(one.content or b""))) for one in VALID.storages),
    )
    recollection.check(VALID, evidence, ABOUT)
    with pytest.raises(UnsoundEvidence):
        recollection.check(other, evidence, ABOUT)


def test_a_success_where_a_refusal_is_due_cannot_pass(results: dict[str, dict[str, CaseResult]]) -> None:
    evidence = _copy(results["Toy"][OVERFLOW.id])
    record = evidence.steps[2]
    record.answer, record.phase, record.requirement = "done", "", ""
    del evidence.steps[3:]
    assert judge(OVERFLOW, evidence) is Status.FAIL


def test_what_is_not_played() -> None:
    overlapping = dataclasses.replace(VALID, script=(Start("run", "session", {}),))
    assert judge_unplayed(OPTIONAL, ABOUT, None) is Status.UNSUPPORTED
    assert judge_unplayed(overlapping, ABOUT, None) is Status.UNSUPPORTED
    assert judge_unplayed(VALID, ABOUT, None) is None
    assert judge_unplayed(READ_ONLY, ABOUT, Status.PASS) is None
    assert judge_unplayed(READ_ONLY, ABOUT, Status.CRASH) is Status.FAIL
    assert judge_unplayed(READ_ONLY_LATE, ABOUT, Status.UNSUPPORTED) is Status.UNSUPPORTED


def test_memory_of_a_device_is_measured_where_the_runtime_tells_it() -> None:
    measured = dataclasses.replace(VALID, measure=Measure())
    telling = dataclasses.replace(ELSEWHERE, capabilities=frozenset({DEVICE_MEMORY}))
    assert judge_unplayed(measured, ELSEWHERE, None) is Status.UNSUPPORTED
    assert judge_unplayed(measured, telling, None) is None
    assert judge_unplayed(measured, ABOUT, None) is None
    assert judge_unplayed(VALID, ELSEWHERE, None) is None


@pytest.mark.parametrize(
    ("unplayed", "twin", "is_played"),
    [
        (Status.UNSUPPORTED, Status.UNSUPPORTED, True),
        (Status.NOT_APPLICABLE, Status.NOT_APPLICABLE, True),
        (Status.UNSUPPORTED, Status.PASS, False),  # unsupported for a reason of its own
        (Status.UNSUPPORTED, None, False),
        (Status.FAIL, Status.CRASH, False),
        (Status.FAIL, Status.FAIL, False),
    ],
)
def test_what_is_played_although_it_cannot_pass(unplayed: Status, twin: Status | None, is_played: bool) -> None:
    assert may_still_fail(unplayed, twin) is is_played


# Figures of memory


def _figures(growth: int = 100 * MIB, run: int = 0, step: int = 0) -> Figures:
    """Two sessions whose caches differ by 96 MiB, and a curve that rises by ``step`` bytes a run."""
    made = Figures(
        sessions=[
            SessionFigures("small", 32 * MIB, MIB, [MIB, 0]),
            SessionFigures("large", 128 * MIB, growth, [MIB, run]),
        ],
        curve=[(number, 64 * MIB + step * number) for number in range(1, 101)],
    )
    derived = made.derived()
    made.slope, made.per_run = derived["slope"], derived["per_run"]
    return made


#: Sessions that were not to be compared, and such with other caches than they have bound.
_RENAMED = [{**session, "session": session["session"].upper()} for session in _figures(2 * MIB).to_json()["sessions"]]
_LARGER = [
    {**session, "cache_bytes": 2 * session["cache_bytes"]} for session in _figures(2 * MIB).to_json()["sessions"]
]


def test_the_slope_is_that_of_growth_over_cache() -> None:
    assert _figures(growth=MIB + 48 * MIB).slope == 0.5
    assert _figures(step=100).per_run == pytest.approx(100)


@pytest.mark.parametrize(
    ("figures", "wrong"),
    [
        (_figures(growth=MIB), []),
        (_figures(growth=MIB + int(96 * MIB * SLOPE)), []),
        (_figures(growth=MIB + int(96 * MIB * SLOPE) + MIB), ["growth with the cache"]),
        (_figures(growth=MIB, run=WORKSPACE), []),
        (_figures(growth=MIB, run=WORKSPACE + 1), ["workspace of a run"]),
        (_figures(growth=MIB, step=PER_RUN - 8), []),
        (_figures(growth=MIB, step=PER_RUN + 8), ["growth with the number of runs"]),
    ],
)
def test_limits(figures: Figures, wrong: list[str]) -> None:
    assert [one.subject for one in findings(figures) if one.expected != one.found] == wrong
    assert all(bool(one.reason) == (one.expected != one.found) for one in findings(figures))
    assert Figures.from_json(figures.to_json()) == figures


def _measured(results: dict[str, dict[str, CaseResult]], figures: Figures) -> tuple[Case, Evidence]:
    """A case that binds the caches of two more sessions at its end, and its evidence."""
    sizes = {"small": 32 * MIB, "large": 128 * MIB}
    case = dataclasses.replace(
        VALID,
        measure=Measure(tuple(sizes)),
        storages=(*VALID.storages, *(Storage(name, 2, (nbytes,)) for name, nbytes in sizes.items())),
        script=(*VALID.script, *(Bind(name, name, {"cache": name}) for name in sizes)),
    )
    evidence = _copy(results["Toy"][VALID.id])
    untouched = Observation(Kind.UNTOUCHED, "every other byte", "unchanged", "unchanged")
    for index in range(len(VALID.script), len(case.script)):
        evidence.steps.append(StepRecord(index, "bind", answer="ok", observations=[untouched]))
    evidence.steps[-1].observations += [one.observation for one in findings(figures)]
    return case, evidence


def test_figures_that_bear_the_verdict_out(results: dict[str, dict[str, CaseResult]]) -> None:
    good, bad = _figures(growth=MIB), _figures(growth=97 * MIB)
    assert judge(*_measured(results, good), good.to_json()) is Status.PASS
    assert judge(*_measured(results, bad), bad.to_json()) is Status.FAIL


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slope": 0.0}, "make a slope of"),
        ({"per_run": 1.0}, "make a per_run of"),
        ({"sessions": []}, "make a slope of None"),
        ({"curve": []}, "make a per_run of None"),
        ({"sessions": _RENAMED}, "not those of the sessions"),
        ({"sessions": _LARGER, "slope": 1 / 192}, "not those of the sessions"),
    ],
)
def test_figures_that_do_not(results: dict[str, dict[str, CaseResult]], change: dict[str, Any], words: str) -> None:
    figures = _figures(growth=2 * MIB)
    case, evidence = _measured(results, figures)
    with pytest.raises(UnsoundEvidence, match=words):
        judge(case, evidence, {**figures.to_json(), **change})
    with pytest.raises(UnsoundEvidence, match="there are no figures"):
        judge(case, evidence)


def test_a_verdict_that_the_figures_do_not_make(results: dict[str, dict[str, CaseResult]]) -> None:
    case, evidence = _measured(results, _figures(growth=MIB))
    with pytest.raises(UnsoundEvidence, match="growth with the cache: the figures make it '100%'"):
        judge(case, evidence, _figures(growth=97 * MIB).to_json())


def test_figures_of_one_size_are_none(results: dict[str, dict[str, CaseResult]]) -> None:
    figures = _figures(growth=MIB)
    case, evidence = _measured(results, figures)
    figures.sessions[1].cache_bytes = figures.sessions[0].cache_bytes
    with pytest.raises(UnsoundEvidence, match="caches of one size"):
        judge(case, evidence, figures.to_json())
