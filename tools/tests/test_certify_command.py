"""``mutcache certify`` and ``mutcache verify`` as their users call them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from mutcache_conformance import provenance
from mutcache_tools import certification
from mutcache_tools.cli import main


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A private and a public key in PEM files."""
    folder = tmp_path_factory.mktemp("keys")
    key = Ed25519PrivateKey.generate()
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "pub.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return folder / "key.pem", folder / "pub.pem"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, keys: tuple[Path, Path]) -> Path:
    """A signed report of a few cases."""
    folder = tmp_path_factory.mktemp("certified")
    product = folder / "product.toml"
    product.write_text('[product]\nvendor = "V"\nname = "N"\nversion = "1"\n')
    suite = ["--runtime=reference", "--profiles=dense", "--shard=1/90", "--nonce=7"]
    files = [f"--out={folder / 'report'}", f"--product={product}"]
    assert main(["certify", *suite, *files, "--format=json"]) == 0
    # A part is signed by no command: it is a report that takes no long run.
    key = certification.private_key(str(keys[0]))
    assert key is not None
    certification.sign(folder / "report", key)
    return folder / "report"


@pytest.fixture
def report(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The suite ran in a process of its own, which may have seen its files a moment before.
    told = json.loads((original / "report.json").read_bytes())["suite"]["sources_sha256"]
    monkeypatch.setattr(provenance, "sources_sha256", lambda: told)
    return shutil.copytree(original, tmp_path / "report")


def test_a_report_has_all_its_parts(report: Path) -> None:
    names = {path.relative_to(report).as_posix() for path in report.rglob("*") if path.is_file()}
    assert names >= {"report.json", "report.html", "junit.xml", "manifest.json", "statement.json", "signature.json"}
    told = json.loads((report / "report.json").read_bytes())
    assert told["product"]["vendor"] == "V"
    assert told["configuration"]["nonce"] == 7
    assert told["reproduce"]["run"].startswith("mutcache certify --runtime=reference --nonce=7 --profiles=dense")


def test_a_sound_report_verifies(report: Path, keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(report), f"--key={keys[1]}", "--rerun=2", "--runtime=reference", "--seed=5"]) == 0
    printed = capsys.readouterr().out
    assert f"{report}: sound" in printed
    assert "rerun     as the report says  2 cases, seed 5" in printed
    assert "Digests prove integrity, not honesty" in printed
    assert "it has no verdict: not all cases were asked for, or run (--shard 1/90)" in printed


def test_a_changed_report_does_not(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report / "report.html").write_text("conformant")
    assert main(["verify", str(report), "--format=json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["sound"] is False
    assert told["problems"]["manifest"] == ["report.html is not the file that the manifest lists: its SHA-256 differs"]
    assert told["rerun"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["certify", "--runtime=reference"], "no folder for the report"),
        (["certify", "--runtime=reference", "--out=x", "--sign=none.pem"], "none.pem cannot be read"),
        (["certify", "--runtime=reference", "--resume=x"], "there is nothing to resume in 'x': no run has begun there"),
        (["certify", "--runtime=reference", "--out=x", "--workers=0"], "--workers 0"),
        (["certify", "--runtime=reference", "--out=x", "--resume=y"], "--resume says which report folder it is"),
        (["certify", "--runtime=reference", "--out=x", "--shard=1/2", "--sign=k.pem"], "a part has no verdict that"),
        (["verify", "none"], "'none' is no folder"),
        (["verify", ".", "--rerun=1"], "--rerun and --runtime belong together"),
        (["verify", ".", "--key=none.pem"], "none.pem cannot be read"),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["certify", "--runtime=r", "--out=x", "--nonce=-1"], ["verify", "x", "--rerun=many"]]
)
def test_numbers_that_are_none(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_folder_without_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "manifest.json cannot be read: No such file or directory" in printed
    assert "not sound" in printed


def test_a_runtime_that_cannot_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--runtime=no_such_module:Adapter", "--shard=1/90", f"--out={tmp_path / 'r'}"]) == 2
    assert "is unavailable" in "".join(capfd.readouterr())
    assert not (tmp_path / "r/report.json").exists()


def test_programs_are_told_that_there_is_no_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["certify", "--runtime=nonsense", f"--out={tmp_path / 'r'}", "--format=json"]
    assert main(arguments) == 2
    told = capfd.readouterr()
    assert json.loads(told.out)["error"]["message"] == "the suite ended with exit code 2"
    assert "'nonsense' is not known" in told.err


def test_a_run_that_is_interrupted_says_how_to_go_on(tmp_path: Path) -> None:
    words = ["--runtime=reference", "--profiles=dense", "--case-order=random:3"]
    certify = [sys.executable, "-m", "mutcache_tools", "certify", *words, "--nonce=7", "--out=the report"]
    with subprocess.Popen(
        certify,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A job in the background of a shell inherits that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as suite:
        journal = tmp_path / "the report/journal.jsonl"
        while suite.poll() is None and not (journal.is_file() and '"result"' in journal.read_text()):
            time.sleep(0.05)
        os.killpg(suite.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
        printed, _ = suite.communicate()
    assert suite.returncode == 130, printed
    assert "No verdict: not all cases were asked for, or run (the run was interrupted)" in printed
    command = f"mutcache certify {' '.join(words)} '--resume=the report'"
    assert f"results so far are kept; to go on:\n  {command}\n" in printed
    assert json.loads((tmp_path / "the report/report.json").read_bytes())["claim"]["selection"]


@pytest.mark.parametrize("text", ["{", "[]", "\x00", '{"footer": NaN}', "[" * 100_000])
def test_a_broken_report_is_no_traceback(report: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (report / "report.json").write_text(text)
    assert main(["verify", str(report)]) == 1
    assert "not sound" in capsys.readouterr().out
