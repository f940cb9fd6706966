"""The folder of a report: nobody else's files are touched, no stale report is left, and no two runs share it."""

from __future__ import annotations

import fcntl
import os
import resource
from pathlib import Path

import pytest
from test_plugin import run, suite, text
from test_resume import subprocess_of

from mutcache_conformance import report_folder
from mutcache_conformance.report import read_report
from mutcache_conformance.report_folder import FolderError

__all__ = ["suite"]  # the fixture
pytest_plugins = ["pytester"]

TOY = "--runtime=toy_runtime:Toy"


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path) -> str:
    with pytest.raises(FolderError) as caught:
        report_folder.prepare(folder)
    return str(caught.value)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=1")
    assert refused(tmp_path) == "it holds '.env', so it is no report's; give a new folder with --report"
    assert names(tmp_path) == {".env"}


def test_what_runs_have_left_is_no_obstacle(tmp_path: Path) -> None:
    for name in ("junit.xml", "logs/main-1.stderr.txt", "partial/report.json", "part-1/journal.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    os.close(report_folder.prepare(tmp_path))
    (tmp_path / "report.json").touch()
    (tmp_path / "note.txt").touch()  # beside a report it is the user's own doing
    os.close(report_folder.prepare(tmp_path))


def test_what_no_report_can_live_with_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a/journal.jsonl").mkdir(parents=True)
    assert refused(tmp_path / "a") == "journal.jsonl is there already, and is no file"
    (tmp_path / "b").mkdir()
    (tmp_path / "b/badges").touch()
    assert refused(tmp_path / "b") == "badges is there already, and is no folder"
    (tmp_path / "c/logs").mkdir(parents=True)
    os.mkfifo(tmp_path / "c/logs/pipe")
    assert refused(tmp_path / "c") == "it holds 'logs/pipe', which is neither a file nor a folder"
    assert "is not UTF-8" in refused(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    (tmp_path / "d/logs").mkdir(parents=True)
    (tmp_path / os.fsdecode(b"d/logs/a\xff")).touch()
    assert refused(tmp_path / "d") == r"it holds 'a\udcff', whose name is not UTF-8"
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file") == "File exists"


def test_a_run_leaves_foreign_files_alone(suite: pytest.Pytester) -> None:
    badges = suite.path / "mine/badges"
    badges.mkdir(parents=True)
    (badges / "build.svg").write_text("build passes")
    (badges / "flow.svg").write_text("flow: conformant")  # of a profile that is claimed no more
    assert run(suite, TOY, "--report=mine").ret == 0
    assert {path.name for path in badges.iterdir()} == {"build.svg", "dense.svg"}
    assert (badges / "build.svg").read_text() == "build passes"


def test_one_run_at_a_time(suite: pytest.Pytester) -> None:
    folder = suite.path / "conformance-report"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    done = subprocess_of(suite, TOY)
    assert done.returncode == 2
    assert "another run is writing there" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert names(folder) == set()
    os.close(descriptor)
    for _ in range(2):  # each run gives it back
        assert run(suite, TOY).ret == 0


@pytest.mark.parametrize("limit", [6_000, 12_000, 30_000])
def test_a_full_disk_is_said_in_a_line_and_leaves_no_verdict(suite: pytest.Pytester, limit: int) -> None:
    folder = suite.path / "conformance-report"
    assert run(suite, TOY).ret == 0
    assert "badges/dense.svg" in names(folder)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # inherited: no file of the run can become larger
    try:
        done = subprocess_of(suite, "--runtime=toy_runtime:Clamping")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert "no report, since 'conformance-report' cannot be written: File too large" in told
    assert "Traceback" not in told
    assert "INTERNALERROR" not in told
    assert not names(folder) & {"report.json", "report.html", "manifest.json", "badges/dense.svg"}
    if limit > 20_000:  # the journal is whole
        again = run(suite, "--runtime=toy_runtime:Clamping", "--resume=conformance-report")
        assert again.ret == 1, text(again)
        assert read_report(folder / "report.json")["claim"]["profiles"][0]["verdict"] == "not conformant"


def test_words_of_the_system_that_are_no_text(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", os.fsdecode(b"1\xff"))
    result = run(suite, TOY)
    assert result.ret == 0, text(result)
    report = read_report(suite.path / "conformance-report/report.json")
    assert report["environment"]["variables"]["OMP_NUM_THREADS"] == r"1\xff"


@pytest.mark.parametrize("argument", [b"--runtime=cmd:h\xff", b"--report=r\xff", b"-k\xff", b"--runtime-option=a=\xff"])
def test_a_command_line_that_is_no_text_is_refused(suite: pytest.Pytester, argument: bytes) -> None:
    done = subprocess_of(suite, TOY, os.fsdecode(argument))
    assert done.returncode == 2
    assert "is not UTF-8, and so no report can say what was asked for" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (suite.path / "conformance-report").exists()


def test_a_summary_has_its_lines_where_characters_are_missing(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess_of(suite, "--runtime=toy_runtime:Limited")
    assert "\nreport: conformance-report/report.json\n" in done.stdout
    assert r"\n" not in done.stdout
