"""Runtimes with caches in the memory of a device: what is said of what the harness cannot see itself."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import device_runtime as devices
import forgeries
import pytest
import sealed_reports as sealed
from fault_table import cases_of, runner
from hooked_runtime import Sound
from toy_cases import CASES

from mutcache.requirements import Profile
from mutcache_conformance import badge, mustpass, summary
from mutcache_conformance.adapter import Description
from mutcache_conformance.adapters import command_of
from mutcache_conformance.compare import compare
from mutcache_conformance.evidence import Basis, Kind
from mutcache_conformance.figures import Figures
from mutcache_conformance.report import Run
from mutcache_conformance.runner import Configuration, Runner, RuntimeUnavailable
from mutcache_conformance.schema import validate
from mutcache_conformance.status import CaseResult, Status
from mutcache_conformance.verify import UNVERIFIABLE
from mutcache_tools import cli

MIB = 1 << 20
EVIDENCE = "on reported evidence (memory of toy:0)"
SIZES, RUNS = "mem-001/chain", "mem-002/update"


def result(adapter: type[Sound], name: str, folder: Path) -> CaseResult:
    with runner(adapter, folder) as one:
        return one.run(cases_of(0)[name])


# Descriptions


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "metal:1", "level-zero:12"])
def test_caches_are_where_a_device_has_a_name_and_a_number(device: str) -> None:
    about = Description("r", "1", "a", "1", device=device)
    assert Description.from_json(json.loads(json.dumps(about.to_json()))) == about
    assert about.is_on_device == (device != "cpu")


@pytest.mark.parametrize("device", ["", "cuda", "cuda:", "cuda:x", "cuda:01", "cpu:0", ":0", "CUDA:0", "cuda:0\n"])
def test_what_is_no_device(device: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"device {device!r} is neither 'cpu' nor NAME:NUMBER")):
        Description("r", "1", "a", "1", device=device)


def test_a_device_without_a_name_is_refused(tmp_path: Path) -> None:
    with runner(devices.Nameless, tmp_path) as one, pytest.raises(RuntimeUnavailable, match="device '' is neither"):
        one.describe()


def test_a_host_is_on_the_device_that_it_names_and_on_none_if_it_names_none(tmp_path: Path) -> None:
    for name, device in (("toy:3", "toy:3"), (None, "cpu"), ("", "")):
        about = {
            "answer": "ok",
            "protocol": 1,
            **{of: {"name": "x", "version": "1"} for of in ("runtime", "adapter")},
            "capabilities": [],
            "alignment": 1,
            "concurrent_runs": False,
            "checks": [],
            **({} if name is None else {"device": name}),
        }
        host = tmp_path / "host.py"
        host.write_text(
            "import json, os, socket\n"
            "channel = socket.socket(fileno=int(os.environ['MUTCACHE_SOCKET'])).makefile('rw')\n"
            "for line in channel:\n"
            f"    channel.write(json.dumps({about!r} | {{'id': json.loads(line)['id']}}) + '\\n')\n"
            "    channel.flush()\n"
        )
        with Runner(Configuration(command_of(f"cmd:python3 {host}"), tmp_path), {}) as one:
            if device:
                assert one.describe().device == device
            else:
                with pytest.raises(RuntimeUnavailable, match=r"does not follow the schema: \$\.device"):
                    one.describe()


# Evidence


@pytest.mark.parametrize("name", ["dense-001/seed-example", "dense-003/by-one", "bind-005/same-session"])
def test_what_is_seen_of_memory_on_a_device_is_reported(name: str, tmp_path: Path) -> None:
    on_device, on_host = (result(kind, name, tmp_path / kind.__name__) for kind in (devices.OnDevice, Sound))
    assert on_device.status is Status.PASS, on_device.reason
    seen, also = ([one for step in side.evidence.steps for one in step.observations] for side in (on_device, on_host))
    assert {one.kind for one in seen} >= {Kind.CONTENTS, Kind.UNTOUCHED, Kind.POKE, Kind.ADDRESS}
    assert {one.basis for one in seen} == {Basis.REPORTED}
    # It is looked at what is looked at elsewhere, and what is expected there.
    assert [dataclasses.replace(one, basis=Basis.REPORTED) for one in also] == seen


@pytest.mark.parametrize("name", ["paged-001/int4", "paged-012/create", "paged-014/create", "paged-004/gap"])
def test_pages_on_a_device_are_reported(name: str, tmp_path: Path) -> None:
    one = result(devices.OnDevice, name, tmp_path)
    assert one.status is Status.PASS, one.reason
    pages = [page for step in one.evidence.steps for page in step.pages]
    assert pages
    assert {page.basis for page in pages} == {Basis.REPORTED}
    seen = [one for step in one.evidence.steps for one in step.observations]
    assert {one.basis for one in seen} == {Basis.REPORTED}


def test_bytes_that_were_not_carried_are_found(tmp_path: Path) -> None:
    stale = result(devices.ShowsOldBytes, "dense-001/seed-example", tmp_path / "stale")
    assert (stale.status, stale.cause) == (Status.FAIL, "an output that must alias its storage is a copy")
    kept = result(devices.ForgetsToCarryBack, "dense-001/seed-example", tmp_path / "kept")
    assert (kept.status, kept.cause) == (Status.FAIL, "a run does not write what it must write")


# Memory


def test_memory_of_a_device_that_nobody_can_know_is_not_judged(tmp_path: Path) -> None:
    words = "the memory of toy:0 cannot be measured from outside, and the runtime does not report it"
    for name in (SIZES, "mem-003/created"):
        one = result(devices.TellsNoMemory, name, tmp_path)
        assert (one.status, one.reason, one.memory) == (Status.UNSUPPORTED, words, None)
        verdict = mustpass.judge(Profile.MEMORY, {one.case: one}, is_selection=False)
        assert verdict.is_conformant is False


def test_memory_of_a_device_is_what_the_runtime_reports(tmp_path: Path) -> None:
    sizes, runs, pages = (result(devices.OnDevice, name, tmp_path) for name in (SIZES, RUNS, "mem-003/created"))
    for one in (sizes, runs, pages):
        assert one.status is Status.PASS, one.reason
        assert one.memory is not None
        validate(one.to_json(), "report", "result")
        assert Figures.from_json(one.memory).to_json() == one.memory
    assert sizes.memory is not None
    assert runs.memory is not None
    assert pages.memory is not None
    told = sizes.memory["device"]["sessions"]
    assert [(one["cache_bytes"], one["growth"]) for one in told] == [(n * MIB, devices.WORKSPACE) for n in (32, 128)]
    assert {taken for one in told for taken in one["runs"]} == {devices.WORKSPACE}
    assert {resident for _, resident in runs.memory["device"]["curve"]} == {0}
    assert pages.memory["device"]["pages"]["page_bytes"] == pages.memory["pages"]["page_bytes"] > 0
    seen = [
        (one.subject, one.basis) for step in sizes.evidence.steps for one in step.observations if one.kind == "memory"
    ]
    assert seen == [
        ("a run that cannot have more", Basis.OBSERVED),
        ("growth with the cache", Basis.OBSERVED),
        ("workspace of a run", Basis.OBSERVED),
        ("growth with the cache (device)", Basis.REPORTED),
        ("workspace of a run (device)", Basis.REPORTED),
    ]


@pytest.mark.parametrize(
    ("adapter", "name", "reason", "basis"),
    [
        (
            devices.CopiesOnDevice,
            SIZES,
            "on the device, as the runtime reports it: memory grows with the cache",
            "reported",
        ),
        (
            devices.LeaksOnDevice,
            RUNS,
            "on the device, as the runtime reports it: memory grows with the number",
            "reported",
        ),
        (devices.CopiesOnHost, SIZES, "memory grows with the cache", "observed"),
    ],
)
def test_copies_are_found_wherever_they_are(
    adapter: type[Sound], name: str, reason: str, basis: str, tmp_path: Path
) -> None:
    one = result(adapter, name, tmp_path)
    assert one.status is Status.FAIL
    assert one.reason.startswith(reason)
    wrong = [seen for step in one.evidence.steps for seen in step.observations if not seen.holds]
    assert {seen.basis.value for seen in wrong} == {basis}


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (devices.RefusesToTell, "reading the memory of the device was answered with unsupported: figures after all"),
        (devices.TellsTheImpossible, "it holds 2 bytes of the device, and never held more than 1"),
    ],
)
def test_a_runtime_that_declares_to_tell_must_tell(adapter: type[Sound], reason: str, tmp_path: Path) -> None:
    one = result(adapter, SIZES, tmp_path)
    assert one.status is Status.FAIL
    assert reason in one.reason


# Verdicts and reports


@pytest.fixture(autouse=True)
def _corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.replace_corpus(monkeypatch)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The reports of a runtime on a device, and of one on the host."""
    runtimes = {"device": "device_runtime:OnDevice", "host": "toy_runtime:Toy"}
    with pytest.MonkeyPatch.context() as patch:
        sealed.replace_corpus(patch)
        yield {name: sealed.make(tmp_path_factory.mktemp(name), runtime) for name, runtime in runtimes.items()}


@pytest.fixture
def folder(originals: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(originals["device"], tmp_path / "report")


def test_a_verdict_on_a_device_says_what_it_rests_on(originals: dict[str, Path], folder: Path) -> None:
    report, on_host = (sealed.read(originals[name]) for name in ("device", "host"))
    (claim,) = report["claim"]["profiles"]
    assert (claim["verdict"], claim["rests_on_reported_evidence"]) == ("conformant", True)
    assert report["runtime"]["device"] == "toy:0"
    page = (folder / "report.html").read_text("utf-8")
    assert f"conforms to the profile dense of the specification, {EVIDENCE}.</h1>" in page
    assert "<dt>caches</dt><dd>in the memory of toy:0</dd>" in page
    assert f'<span class="odd">{EVIDENCE}</span>' in page
    assert "what they hold there is what the adapter reports" in page
    assert "conformant, on reported evidence</text>" in (folder / badge.FOLDER / "dense.svg").read_text("utf-8")
    checked = sealed.check(folder)
    assert checked.is_sound, checked.problems
    words = "caches are in the memory of toy:0, and what they hold there is what the adapter reports"
    assert f"on reported evidence: {words}" in checked.notes
    (verdict,) = compare(on_host, report).verdicts
    assert (verdict.before, verdict.after) == ("conformant (5 of 5)", f"conformant (3 of 5), {EVIDENCE}")


def test_the_commands_say_it_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["verify", str(folder)])  # whose corpus is another one
    assert f"\ndense: conformant, 3 of 5, {EVIDENCE}\n" in capsys.readouterr().out
    cli.main(["compare", str(folder), str(folder)])
    assert f"\ndense: conformant (3 of 5), {EVIDENCE}\n" in capsys.readouterr().out


def test_the_summary_says_what_verdicts_rest_on(folder: Path) -> None:
    report = sealed.read(folder)
    results = {one["case"]: CaseResult.from_json(one) for one in report["results"]}
    about = Description.from_json(report["runtime"])
    run = Run("r", about, list(CASES.values()), results, (Profile.DENSE,))
    text = summary.render(run, "report", width=90, color=False)
    assert re.search(r"^dense +conformant, on reported evidence +3 of 5", text, re.MULTILINE)
    words = (
        "on reported evidence: caches are in the memory of toy:0, and what they hold there is what the adapter reports"
    )
    assert words in " ".join(text.split())
    assert "reported evidence" not in summary.render(
        dataclasses.replace(run, selection="-k x", results={}), "report", width=90, color=False
    )


def test_evidence_of_a_device_cannot_be_made_that_of_the_host(folder: Path) -> None:
    report = sealed.read(folder)
    report["runtime"]["device"] = "cpu"
    sealed.reseal(folder, report)
    problems = sealed.problems(folder)
    assert any("memory was not observed, as it is recorded, with caches in cpu" in problem for problem in problems)


def measured(name: str, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """The report of one case in which memory is measured."""
    case = cases_of(0)[name]
    patch.setattr(mustpass, "required_cases", lambda _: ())
    patch.setattr(sealed, "cases_of", lambda _: (case,))
    sealed.make(folder, "device_runtime:OnDevice", [case])
    assert sealed.check(folder).is_sound
    return folder


@pytest.mark.parametrize("name", [RUNS, SIZES, "mem-003/created"])
def test_figures_that_can_be_forged_are_those_of_the_list(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnoticed = forgeries.unnoticed(measured(name, tmp_path, monkeypatch), "memory")
    assert unnoticed <= set(UNVERIFIABLE), sorted(unnoticed - set(UNVERIFIABLE))


def test_figures_of_memory_are_of_the_device_where_caches_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = measured(RUNS, tmp_path, monkeypatch)

    def problems(change: Any) -> str:
        report = sealed.read(folder)
        change(report["results"][0]["memory"])
        sealed.reseal(folder, report)
        return "\n".join(sealed.problems(folder))

    words = "the figures of memory make a per_run of 4096.0; recorded is 0.0"
    assert words in problems(lambda memory: memory["device"].update(curve=[[1, 0], [2, 4096]]))
    words = "the figures of memory are not those of a runtime with caches in toy:0"
    assert words in problems(lambda memory: memory.pop("device"))
