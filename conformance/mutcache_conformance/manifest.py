"""The manifest of a report folder: every file of it, with its size and its SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mutcache_conformance.schema import SchemaError, validate
from mutcache_conformance.wording import one_line

FORMAT: Final = 1
NAME: Final = "manifest.json"
#: What is written after the manifest.
SIGNED: Final = ("statement.json", "signature.json")
#: What a run that is not over has there, and one that is must not.
JOURNAL: Final = "journal.jsonl"
#: A report of a selection of cases lies below that of all cases, and is checked by itself.
PARTIAL: Final = "partial"
_APART: Final = frozenset({NAME, *SIGNED})
_LARGEST: Final = 64 << 20


class ManifestError(ValueError):
    """A folder has no manifest that can be read."""


def write(folder: Path) -> Path:
    """Write ``manifest.json``, whole or not at all, over every file that the folder holds now.

    What is no file, or has a name that is no UTF-8, is left out, and so found by ``problems``.
    """
    for name in (NAME, *SIGNED):  # a process that was killed may have left them
        (folder / f"{name}.part").unlink(missing_ok=True)
    files = [
        {"path": name, "bytes": (folder / name).stat().st_size, "sha256": digest(folder / name)}
        for name in files_of(folder)
        if name != JOURNAL and (folder / name).is_file() and _is_text(name)
    ]
    path = folder / NAME
    temporary = folder / f"{NAME}.part"
    text = json.dumps({"format": FORMAT, "files": files}, indent=1, ensure_ascii=False)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    os.replace(temporary, path)
    return path


def files_of(folder: Path) -> list[str]:
    """Everything below a report folder that is no folder, as paths with slashes."""
    entries = [entry for entry in folder.iterdir() if entry.name not in _APART]
    paths = [path for entry in entries if entry.name != PARTIAL or not entry.is_dir() for path in _walk(entry)]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def irregular(folder: Path) -> list[str]:
    """What lies there and is neither file nor folder: to read it may never end."""
    names = [*files_of(folder), *(name for name in (NAME, *SIGNED) if os.path.lexists(folder / name))]
    return [f"{one_line(name)} is no file" for name in names if not (folder / name).is_file()]


def problems(folder: Path) -> list[str]:
    """What is not as the manifest says: files that are changed, gone or added.

    Raises:
        ManifestError: there is no manifest that can be read.
    """
    listed = _read(folder / NAME)
    present = set(files_of(folder))
    found = [f"{one_line(name)} is not in the manifest" for name in sorted(present - listed.keys())]
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


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _walk(path: Path) -> Iterator[Path]:
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            yield from _walk(entry)
    else:
        yield path
