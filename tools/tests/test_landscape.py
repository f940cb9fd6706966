"""The landscape: committed results, the pages made of them, and the process that a scene is played in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutcache.requirements import Req
from mutcache_tools.generate import ROOT, SourceError, landscape, stale_files
from mutcache_tools.landscape import FOLDER, RUNTIMES, Runtime, __main__, probing, results
from mutcache_tools.landscape.claims import CLAIMS
from mutcache_tools.landscape.probing import Observation

RUNTIME = Runtime("some", "Some runtime", ("numpy",))


def result(case: str, status: str, reason: str = "", cause: str = "") -> dict[str, Any]:
    requirement = "MC-" + case.partition("/")[0].upper()
    return {"case": case, "status": status, "reason": reason, "cause": cause, "requirements": [requirement]}


def report(*found: dict[str, Any]) -> dict[str, Any]:
    return {
        "runtime": {
            "runtime": "some",
            "runtime_version": "2.0",
            "adapter": "some",
            "adapter_version": "1",
            "checks": [],
        },
        "environment": {"machine": "m68k", "cpus": 1, "cpu": "68000", "python": "CPython"},
        "suite": {"cases_sha256": "00"},
        "configuration": {"options": {"threads": "1"}},
        "claim": {
            "profiles": [{"profile": "dense", "verdict": "not conformant", "required": 9, "passed": 1, "counts": {}}]
        },
        "results": list(found),
    }


def condensed(*found: dict[str, Any], observations: tuple[Observation, ...] = ()) -> dict[str, Any]:
    return results.condense(RUNTIME, report(*found), observations, date="2026-01-02")


def observation(status: str, *requirements: Req) -> Observation:
    return Observation("seen", requirements, status, "Did it.", "Saw *it*.", "memory", {"bytes": 7})


def test_pages_are_those_of_the_committed_results() -> None:
    assert stale_files(landscape.generate()) == []


def test_every_statement_of_the_proposal_has_its_observations() -> None:
    assert set(CLAIMS) <= {runtime.name for runtime in RUNTIMES}
    for name, claims in CLAIMS.items():
        data = results.read(name, ROOT)
        assert data is not None
        known = {one["name"] for one in data["observations"]}
        assert {one for claim in claims for one in claim.observations} <= known


def test_committed_results_name_known_requirements_and_no_machine() -> None:
    for path in sorted((ROOT / FOLDER).glob("*.json")):
        text = path.read_text("utf-8")
        assert str(ROOT) not in text
        assert "/root" not in text
        data = json.loads(text)
        assert data["runtime"] == path.stem
        assert all(Req(one) for observed in data["observations"] for one in observed["requirements"])


def test_causes_are_grouped_and_addresses_left_out() -> None:
    data = condensed(
        result("dense-001/a", "fail", "byte 4 at 0x7f89d43fc040 is wrong\nmore", "wrong"),
        result("dense-001/b", "fail", "byte 5 at 0x7f89d43fc040 is wrong", "wrong"),
        result("dense-001/c", "crash", "it ended", "it ended"),
        result("dense-002/d", "pass"),
        result("dense-003/e", "unsupported", "no such mode"),
    )
    assert data["results"]["dense-001/b"] == "fail"
    assert [(one["requirement"], one["status"], one["count"]) for one in data["causes"]] == [
        ("MC-DENSE-001", "crash", 1),
        ("MC-DENSE-001", "fail", 2),
        ("MC-DENSE-003", "unsupported", 1),
    ]
    assert data["causes"][1]["reason"] == "byte 4 at (address) is wrong\nmore"
    assert data["causes"][2]["cause"] == "no such mode"
    assert "reason" not in data["causes"][2]
    assert data["measured"]["versions"] == {"numpy": np.__version__}


@pytest.mark.parametrize(
    ("statuses", "seen", "word", "passed"),
    [
        (["pass", "pass"], "", "pass", "2/2"),
        (["pass", "crash"], "", "fail", "1/2"),
        (["pass", "not-applicable"], "", "part", "1/2"),
        (["unsupported"], "", "unsupported", "0/1"),
        (["unsupported", "not-applicable"], "pass", "pass", "1/1"),
        (["unsupported"], "unsupported", "unsupported", "0/2"),
        (["pass"], "fail", "fail", "1/2"),
        ([], "crash", "fail", "0/1"),
    ],
)
def test_a_cell_sums_up_cases_and_observations(statuses: list[str], seen: str, word: str, passed: str) -> None:
    found = [result(f"dense-001/{number}", status, "why") for number, status in enumerate(statuses)]
    observations = (observation(seen, Req.MC_DENSE_001),) if seen else ()
    cell = landscape.cells(condensed(*found, observations=observations))[Req.MC_DENSE_001]
    assert (cell.word, cell.passed) == (word, passed)


def test_a_failure_is_one_click_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = condensed(
        result("dense-001/a", "fail", "6 bytes differ", "wrong"), observations=(observation("fail", Req.MC_MEM_001),)
    )
    monkeypatch.setattr(landscape, "ROOT", tmp_path)
    monkeypatch.setattr(landscape, "RUNTIMES", (RUNTIME, Runtime("other", "Other runtime", ("none",))))
    results.write("some", data, tmp_path)
    pages = {path.name: text for path, text in landscape.generate().items()}
    assert sorted(pages) == ["landscape.rst", "some.rst"]
    assert "Not measured yet: Other runtime." in pages["landscape.rst"]
    for requirement in ("mc-dense-001", "mc-mem-001"):
        assert f"<landscape-some-{requirement}>`" in pages["landscape.rst"]
        assert f".. _landscape-some-{requirement}:" in pages["some.rst"]
    assert "6 bytes differ" in pages["some.rst"]
    assert "Saw \\*it\\*. Judged by measured memory only." in pages["some.rst"]


def test_a_statement_without_its_observation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landscape, "ROOT", tmp_path)
    monkeypatch.setattr(landscape, "RUNTIMES", (Runtime("llama.cpp", "llama.cpp", ("numpy",)),))
    results.write("llama.cpp", condensed(), tmp_path)
    with pytest.raises(SourceError, match="no observation capacity"):
        landscape.generate()


def test_an_absent_runtime_is_skipped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(__main__, "RUNTIMES", (Runtime("other", "Other", ("no-such-distribution",)),))
    assert __main__.main([]) == 0
    assert "other: skipped, no-such-distribution is not installed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        __main__.main(["unheard-of"])


def test_probes_alone_leave_the_results_of_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(__main__, "ROOT", tmp_path)
    monkeypatch.setattr(__main__, "RUNTIMES", (RUNTIME,))
    assert __main__.main(["--probes"]) == 1
    assert "run the suite, too" in capsys.readouterr().err
    data = condensed(result("dense-001/a", "pass"), observations=(observation("pass", Req.MC_MEM_001),))
    results.write("some", data, tmp_path)
    assert __main__.main(["--probes", "some"]) == 0
    assert results.read("some", tmp_path) == {**data, "observations": []}


SOURCES = ("reference", "conformance", "cupy_kernels", "tools")
SCENES = """
import os, signal
from mutcache_tools.landscape.probing import note, peak
def scene_ends(word):
    return {"word": word}
def scene_is_killed():
    note({"before": True})
    os.kill(os.getpid(), signal.SIGABRT)
def scene_raises():
    raise ValueError("it does not work")
def scene_grows():
    with peak() as found:
        kept = bytearray(64 << 20)
        kept[::4096] = b"x" * len(kept[::4096])
    with peak() as still:
        pass
    return {"grown": found.growth, "still": still.growth}
"""


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "toy_scenes.py").write_text(SCENES, "utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *(str(ROOT / source) for source in SOURCES)]))
    return "toy_scenes"


def test_a_scene_is_played_in_a_process_of_its_own(scenes: str) -> None:
    assert probing.play(scenes, "ends", "well")["word"] == "well"
    killed = probing.play(scenes, "is_killed")
    assert (killed["before"], killed["signal"]) == (True, "SIGABRT")
    with pytest.raises(RuntimeError, match="it does not work"):
        probing.play(scenes, "raises")


def test_growth_is_the_peak_of_what_is_resident(scenes: str) -> None:
    found = probing.play(scenes, "grows")
    assert 64 << 20 <= found["grown"] < 72 << 20
    assert found["still"] < 1 << 20
