"""The manifest of a report folder: every file of it, with its size and its SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mutcache_conformance.schema import SchemaError, validate

FORMAT: Final = 1
NAME: Final = "manifest.json"
#: What is written after the manifest, or belongs to a run that is not over.
SIGNED: Final = ("statement.json", "signature.json")
_APART: Final = frozenset({NAME, "journal.jsonl", *SIGNED})
_LARGEST: Final = 64 << 20


class ManifestError(ValueError):
    """A folder has no manifest that can be read."""


def write(folder: Path) -> Path:
    """Write ``manifest.json``, whole or not at all, over every file that the folder holds now."""
    files = [
        {"path": name, "bytes": (folder / name).stat().st_size, "sha256": digest(folder / name)}
        for name in files_of(folder)
    ]
    path = folder / NAME
    temporary = folder / f"{NAME}.part"
    text = json.dumps({"format": FORMAT, "files": files}, indent=1, ensure_ascii=False)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    os.replace(temporary, path)
    return path


def files_of(folder: Path) -> list[str]:
    """The files of a report, as paths with slashes; a folder below it that has a manifest is a report of its own."""
    return sorted(path.relative_to(folder).as_posix() for path in _walk(folder, is_top=True))


def problems(folder: Path) -> list[str]:
    """What is not as the manifest says: files that are changed, gone or added.

    Raises:
        ManifestError: there is no manifest that can be read.
    """
    listed = _read(folder / NAME)
    present = set(files_of(folder))
    found = [f"{name} is not in the manifest" for name in sorted(present - listed.keys())]
    for name, entry in listed.items():
        if name not in present:
            found.append(f"{name} is missing")
        elif (folder / name).is_symlink():
            found.append(f"{name} is a link")
        elif (folder / name).stat().st_size != entry["bytes"] or digest(folder / name) != entry["sha256"]:
            found.append(f"{name} is not the file that the manifest lists: its SHA-256 differs")
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ManifestError(f"{NAME} is larger than any manifest")
        document = json.loads(path.read_text(encoding="utf-8"))
        validate(document, "manifest")
    except OSError as error:
        raise ManifestError(f"{NAME} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, SchemaError) as error:
        raise ManifestError(f"{NAME} is no manifest: {error}") from error
    files = {entry["path"]: entry for entry in document["files"]}
    if len(files) != len(document["files"]):
        raise ManifestError(f"{NAME} lists a file twice")
    return files


def _walk(folder: Path, *, is_top: bool) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            if not (path / NAME).exists():
                yield from _walk(path, is_top=False)
        elif not (is_top and (path.name in _APART or path.name.endswith(".part"))):
            yield path
