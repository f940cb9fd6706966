"""Where things come from, as a report says."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from toy_cases import CASES, VALID

from mutcache_conformance import provenance
from mutcache_conformance.adapters import reference
from mutcache_conformance.provenance import ProductError

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")


def test_an_adapter_is_digested_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "raise SystemExit('imported')\n"
    (tmp_path / "vendor_adapter.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    told = provenance.adapter("vendor_adapter:Adapter")
    assert told["source"] == [
        {"file": "vendor_adapter.py", "sha256": hashlib.sha256(source.encode()).hexdigest()},
    ]
    assert told["command"][-1] == "vendor_adapter:Adapter"
    assert "vendor_adapter" not in sys.modules
    before = told["source_sha256"]
    (tmp_path / "vendor_adapter.py").write_text(source + "# changed\n")
    assert provenance.adapter("vendor_adapter:Adapter")["source_sha256"] != before


def test_an_adapter_in_a_package_is_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "vendor_package" / "glue"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for name in ("__init__.py", "engine.py"):
        (package / name).write_text(f"# {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = provenance.adapter("vendor_package.glue:Adapter")
    assert [one["file"] for one in told["source"]] == ["__init__.py", "engine.py"]


def test_registered_adapters_and_commands(tmp_path: Path) -> None:
    (one,) = provenance.adapter("reference")["source"]
    assert one["sha256"] == hashlib.sha256(Path(reference.__file__).read_bytes()).hexdigest()
    script = tmp_path / "host.py"
    script.write_text("pass\n")
    told = provenance.adapter(f"cmd:{sys.executable} {script}")
    assert "host.py" in {one["file"] for one in told["source"]}
    assert provenance.adapter("there_is_none:Adapter")["source"] == []
    assert provenance.adapter("there_is_none:Adapter")["source_sha256"] == ""


def test_the_digest_of_cases_depends_on_each_and_their_order() -> None:
    cases = list(CASES.values())
    digests = {provenance.digest_of_cases(some) for some in (cases, cases[::-1], cases[1:], [VALID])}
    assert len(digests) == 4


def _packages(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(provenance, "_PACKAGES", (home,))


def _package(folder: Path) -> Path:
    home = folder / "some_suite"
    home.mkdir()
    (home / "a.py").write_text("a = 1\n")
    return home


def test_a_checkout_is_clean_or_says_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _package(tmp_path)
    _packages(monkeypatch, home)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*GIT, *command], cwd=tmp_path, check=True)
    origin = provenance.suite([VALID])["origin"]
    assert origin["kind"] == "checkout"
    assert origin["is_clean"] is True
    assert len(origin["commit"]) == len(origin["tree"]) == 40
    (home / "a.py").write_text("a = 2\n")
    (tmp_path / "new.py").touch()
    changed = provenance.suite([VALID])["origin"]
    assert changed["is_clean"] is False
    assert changed["changed"] == ["some_suite/a.py"]  # new.py is none of the suite


def test_a_wheel_is_checked_against_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _package(tmp_path)
    _packages(monkeypatch, home)
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"a = 1\n").digest()).rstrip(b"=").decode()
    record = f"some_suite/a.py,sha256={digest},6\nthing-1.dist-info/METADATA,,\nthing-1.dist-info/RECORD,,\n"
    info = tmp_path / "thing-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: thing\nVersion: 1\n")
    (info / "RECORD").write_text(record)
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.PathDistribution(info))
    origin = provenance.suite([VALID])["origin"]
    assert (origin["kind"], origin["is_clean"]) == ("wheel", True)
    assert origin["record_sha256"] == hashlib.sha256(record.encode()).hexdigest()
    (home / "a.py").write_text("a = 2\n")
    assert provenance.suite([VALID])["origin"] | {"is_clean": False, "changed": ["some_suite/a.py"]} == {
        **origin,
        "is_clean": False,
        "changed": ["some_suite/a.py"],
    }


def test_files_of_unknown_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _packages(monkeypatch, _package(tmp_path))
    origin = provenance.suite([VALID])["origin"]
    assert (origin["kind"], origin["is_clean"]) == ("unknown", None)


def _files(runtime: str) -> list[str]:
    return [one["file"] for one in provenance.adapter(runtime)["source"]]


def test_an_adapter_is_all_the_files_that_its_command_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/host.py", "b/host.py", "pack/__init__.py", "pack/__main__.py", "pack/sub/__init__.py", "raw.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    python = Path(sys.executable).name
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert _files(f"cmd:{python} a/host.py ./a/host.py") == ["host.py", python]
    (first, second, *_) = _files(f"cmd:{python} a/host.py b/host.py")
    assert (first, second) == ("a/host.py", "b/host.py")
    assert _files(f"cmd:{python} -u -m raw --port 1") == [python, "raw.py"]
    assert _files(f"cmd:{python} -m none") == [python]
    inside = {"pack/__init__.py", "pack/__main__.py", "sub/__init__.py"}
    assert set(_files(f"cmd:{python} -m pack")) == inside | {f"{Path(sys.executable).parent.name}/{python}"}
    before = provenance.adapter(f"cmd:{python} -m raw")["source_sha256"]
    (tmp_path / "raw.py").write_text("# another\n")
    assert provenance.adapter(f"cmd:{python} -m raw")["source_sha256"] != before


def _product(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "product.toml"
    path.write_text(text)
    return provenance.read_product(path)


def test_what_editors_leave_beside_the_suite_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "suite"
    package.mkdir()
    (package / "module.py").write_text("x = 1\n")
    monkeypatch.setattr(provenance, "_PACKAGES", (package,))
    digest = provenance.sources_sha256.__wrapped__
    before = digest()
    for name in (".module.py.swp", "module.py~", ".cache/module.py", "__pycache__/module.py", "module.pyc"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("x")
    assert digest() == before
    for name, text in (("module.py", "x = 2\n"), ("other.py", ""), ("data.json", "{}")):
        (package / name).write_text(text)
        assert digest() != before
        before = digest()


def test_a_product(tmp_path: Path) -> None:
    text = '[product]\nvendor = "V"\nname = "N"\nversion = "1"\n'
    assert _product(tmp_path, text) == {"vendor": "V", "name": "N", "version": "1", "url": "", "contact": ""}
    assert _product(tmp_path, text + 'url = "https://e.com"\n')["url"] == "https://e.com"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have one table"),
        ("product = 1", "must have one table"),
        ("[product", "is no TOML"),
        ('[product]\nvendor = "V"\nname = "N"', "product.version is missing"),
        ('[product]\nvendor = " "\nname = "N"\nversion = "1"', "product.vendor is missing"),
        ('[product]\nvendor = "V"\nname = "N"\nversion = 1', "product.version must be a line of text"),
        ('[product]\nvendor = "V"\nname = "a\\nb"\nversion = "1"', "product.name must be a line of text"),
        ('[product]\nvendor = "V"\nname = "N"\nversion = "1"\nurl = "javascript:1"', "must begin with https"),
        ('[product]\nvendor = "V"\nname = "N"\nversion = "1"\ncolor = "red"', "product.color is not known"),
    ],
)
def test_what_is_no_product(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ProductError, match=words):
        _product(tmp_path, text)
