"""Where things come from: the suite that judged, the adapter that was judged, and the product that is spoken of."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.machinery
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import mutcache
from mutcache.requirements import Req
from mutcache_conformance import case_json, mustpass
from mutcache_conformance.adapters import REGISTERED, UnknownRuntime, command_of
from mutcache_conformance.case import Case
from mutcache_conformance.environment import as_text
from mutcache_conformance.evidence import canonical_json
from mutcache_conformance.protocol import VERSION as PROTOCOL

#: The packages whose files make up the suite: the harness with its cases, and the formats that it reads.
_PACKAGES: Final = (Path(__file__).resolve().parent, Path(mutcache.__file__).resolve().parent)
#: What the files of the suite end in: all that it imports or reads.
_SUFFIXES: Final = frozenset({".py", ".json", ".j2", ".md"})
_DISTRIBUTION: Final = "mutcache"
#: So many changed files of a checkout are named.
_CHANGED: Final = 50
_GIT_TIMEOUT: Final = 20.0
_PRODUCT: Final = ("vendor", "name", "version", "url", "contact")
_NEEDED: Final = ("vendor", "name", "version")
_LONGEST: Final = 200


class ProductError(ValueError):
    """A ``product.toml`` that says too little, or something else."""


def specification() -> dict[str, str]:
    """The version of the specification, and a digest of the text of every requirement."""
    texts = {requirement.value: requirement.entry.text_hash for requirement in Req}
    return {"version": version(), "requirements_sha256": case_json.sha256(canonical_json(texts))}


def suite(cases: Iterable[Case]) -> dict[str, Any]:
    """The suite: its version, where its files come from and whether they are untouched, and digests of all it rests on.

    Args:
        cases: every case of the nonce.
    """
    return {"version": version(), "origin": origin(), **digests(cases)}


def digests(cases: Iterable[Case]) -> dict[str, Any]:
    """Digests of all that a verdict rests on: the suite's files, its lists, and the cases."""
    return {
        "sources_sha256": sources_sha256(),
        "mustpass_sha256": mustpass.digest_of_lists(),
        "not_applicable_sha256": mustpass.digest_of_not_applicable(),
        "cases_sha256": digest_of_cases(cases),
    }


def digest_of_cases(cases: Iterable[Case]) -> str:
    """A digest of cases, in their order."""
    return case_json.sha256(canonical_json([case_json.digest(case) for case in cases]))


def version() -> str:
    """The version of this distribution; of a checkout that is not installed "unknown"."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


@functools.cache
def sources_sha256() -> str:
    """A digest of every file of the suite as it runs here, however it was installed."""
    return _digest_of_files(
        (f"{package.name}/{path.relative_to(package).as_posix()}", path)
        for package in _PACKAGES
        for path in sorted(package.rglob("*"))
        if path.suffix in _SUFFIXES and path.is_file() and not _is_hidden(path.relative_to(package))
    )


def _is_hidden(path: Path) -> bool:
    """Whether it is what editors and tools leave beside the files of a package."""
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def adapter(runtime: str) -> dict[str, Any]:
    """How the runtime is started, and a digest of the files that stand in for it: the adapter, or the executable.

    Args:
        runtime: what ``--runtime`` said.
    """
    try:
        command = command_of(runtime)
    except UnknownRuntime:
        command = []
    files = _named(_adapter_files(runtime, command))
    source = [{"file": name, "sha256": _digest_of_file(path)} for name, path in sorted(files.items())]
    return {
        "runtime": runtime,
        "command": [as_text(word) for word in command],
        "protocol": PROTOCOL,
        "source": source,
        "source_sha256": digest_of_sources(source),
    }


def digest_of_sources(source: Iterable[Mapping[str, str]]) -> str:
    """A digest of the files of an adapter, as they stand in a report; "" if it has none."""
    pairs = [[one["file"], one["sha256"]] for one in source]
    return case_json.sha256(canonical_json(pairs)) if pairs else ""


def read_product(path: Path) -> dict[str, str]:
    """The product that a report speaks of, from a ``product.toml``.

    It has one table, ``[product]``, with strings: ``vendor``, ``name`` and ``version``, and where there are any
    ``url`` and ``contact``.

    Raises:
        ProductError: it says too little, or something else.
        OSError: it cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ProductError(f"{path} is no TOML: {error}") from None
    told = data.get("product")
    if set(data) != {"product"} or not isinstance(told, dict):
        raise ProductError(f"{path} must have one table, [product], with {', '.join(_PRODUCT)}")
    unknown = sorted(set(told) - set(_PRODUCT))
    if unknown:
        raise ProductError(f"{path}: product.{unknown[0]} is not known; there are {', '.join(_PRODUCT)}")
    for name in _PRODUCT:
        value = told.get(name, "")
        if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
            raise ProductError(f"{path}: product.{name} must be a line of text of at most {_LONGEST} characters")
        if name in _NEEDED and not value.strip():
            raise ProductError(f"{path}: product.{name} is missing")
    url = told.get("url", "")
    if url and not url.startswith(("https://", "http://")):
        raise ProductError(f"{path}: product.url {url!r} must begin with https:// or http://")
    return {name: told.get(name, "") for name in _PRODUCT}


def origin() -> dict[str, Any]:
    """Where the suite's files come from; ``is_clean`` is None where nobody can tell."""
    home = _PACKAGES[0]
    unknown: dict[str, Any] = {"kind": "unknown", "commit": "", "tree": "", "record_sha256": ""}
    unknown |= {"is_clean": None, "changed": []}
    commit = _git(home, "rev-parse", "HEAD")
    top = _git(home, "rev-parse", "--show-toplevel")
    if commit and top and _git(Path(top), "ls-files", "--", str(home)):
        packages = [str(package) for package in _PACKAGES]
        status = _git(Path(top), "status", "--porcelain", "--untracked-files=all", "--", *packages)
        changed = [line[3:] for line in (status or "").splitlines()]
        tree = _git(home, "rev-parse", "HEAD^{tree}") or ""
        is_clean = None if status is None else not changed
        return unknown | {
            "kind": "checkout",
            "commit": commit,
            "tree": tree,
            "is_clean": is_clean,
            "changed": changed[:_CHANGED],
        }
    record = _record(home)
    if record is None:
        return unknown
    changed = [file for file, expected in record[1].items() if not _is_intact(home.parent / file, expected)]
    return unknown | {
        "kind": "wheel",
        "record_sha256": case_json.sha256(record[0].encode()),
        "is_clean": not changed,
        "changed": changed[:_CHANGED],
    }


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says of a folder, or None where there is no git, or no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def _record(home: Path) -> tuple[str, Mapping[str, str]] | None:
    """The RECORD of the wheel that installed the suite: its text, and the digest of each file of ours, by path."""
    try:
        distribution = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    text = distribution.read_text("RECORD")
    here = [file for file in distribution.files or () if file.hash is not None and file.parts[0] in _names()]
    if text is None or not here or not any(Path(str(file.locate())).resolve().is_relative_to(home) for file in here):
        return None
    return text, {file.as_posix(): f"{file.hash.mode}={file.hash.value}" for file in here if file.hash is not None}


def _names() -> list[str]:
    return [package.name for package in _PACKAGES]


def _is_intact(path: Path, expected: str) -> bool:
    algorithm, _, value = expected.partition("=")
    try:
        digest = hashlib.new(algorithm, path.read_bytes()).digest()
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == value


def _adapter_files(runtime: str, command: Sequence[str]) -> list[Path]:
    """The files of an adapter: its module or package, or what the command line names."""
    if runtime.startswith("cmd:"):
        executable = [shutil.which(command[0])] if command else []
        named = [*(word for word in executable if word), *command[1:]]
        return [*(path for path in map(Path, named) if path.is_file()), *_run_as_module(command)]
    module = REGISTERED.get(runtime, runtime).partition(":")[0]
    return _module_files(module)


def _run_as_module(command: Sequence[str]) -> list[Path]:
    """The files of ``python -m MODULE``, as far as they can be found from here."""
    if not command or not Path(command[0]).name.startswith(("python", "pypy")) or "-m" not in command[1:-1]:
        return []
    return _module_files(command[command.index("-m", 1) + 1], [str(Path.cwd()), *sys.path])


def _module_files(module: str, search: Sequence[str] | None = None) -> list[Path]:
    path = _module_file(module, search)
    if path is None:
        return []
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]


def _named(files: Iterable[Path]) -> dict[str, Path]:
    """Files by name, with as many of their folders as it takes to tell them apart."""
    paths = list(dict.fromkeys(path.absolute() for path in files))
    parts = 1
    while len({path.parts[-parts:] for path in paths}) < len(paths):
        parts += 1
    return {as_text("/".join(path.parts[-parts:])): path for path in paths}


def _module_file(module: str, search: Sequence[str] | None = None) -> Path | None:
    """Where a module lies. Nothing is imported: that is for the child to do."""
    origin: str | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            return None
        origin, search = spec.origin, spec.submodule_search_locations
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def _digest_of_file(path: Path) -> str:
    return case_json.sha256(path.read_bytes())


def _digest_of_files(files: Iterable[tuple[str, Path]]) -> str:
    return case_json.sha256(canonical_json([[name, _digest_of_file(path)] for name, path in files]))
