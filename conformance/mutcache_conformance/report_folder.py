"""The folder that a run writes its report into: nobody else's, one run's at a time, with no stale report."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Final

from mutcache.requirements import Profile

REPORT: Final = "report.json"
JOURNAL: Final = "journal.jsonl"
#: What says of a run how it went. The manifest and the signature cover it.
_VERDICTS: Final = (REPORT, "report.html", "manifest.json", "statement.json", "signature.json")
_FILES: Final = (*_VERDICTS, JOURNAL, "junit.xml")
_FOLDERS: Final = ("badges", "failures", "logs", "partial")


class FolderError(ValueError):
    """A folder that no report can be written into."""


def prepare(folder: Path) -> int:
    """Make the folder, and take it for this process.

    Returns:
        A descriptor; as long as it is open, no other run can have the folder.

    Raises:
        FolderError: it cannot be written, it is somebody else's, or another run has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FolderError(error.strerror or str(error)) from None
    try:
        _lock(descriptor)
        _check_entries(folder)
    except OSError as error:
        os.close(descriptor)
        raise FolderError(error.strerror or str(error)) from None
    except FolderError:
        os.close(descriptor)
        raise
    return descriptor


def clear(folder: Path) -> None:
    """Remove what an earlier run's report says, and nothing else: what stands there from now on is of this run.

    Raises:
        OSError: it cannot be removed.
    """
    for name in _VERDICTS:
        (folder / name).unlink(missing_ok=True)
        (folder / f"{name}.part").unlink(missing_ok=True)
    for profile in Profile:
        badge_of(folder, profile).unlink(missing_ok=True)


def badge_of(folder: Path, profile: Profile) -> Path:
    """Where the badge of a profile lies."""
    return folder / "badges" / f"{profile.value}.svg"


def is_report(folder: Path) -> bool:
    """Whether a run has written there."""
    return (folder / REPORT).exists() or (folder / JOURNAL).exists()


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderError("another run is writing there; wait for it, or give another folder with --report") from None
    except OSError:  # a file system without locks
        pass


def _check_entries(folder: Path) -> None:
    """Refuse what a report cannot live with, before it comes to that at the end of a long run."""
    if not _is_text(str(folder)):
        raise FolderError("its name is not UTF-8, and so no report can name it")
    for path in folder.iterdir():
        must_be_file, must_be_folder = path.name in _FILES, path.name in _FOLDERS
        if (must_be_file and not path.is_file()) or (must_be_folder and not path.is_dir()):
            raise FolderError(f"{path.name} is there already, and is no {'file' if must_be_file else 'folder'}")
        is_ours = must_be_file or must_be_folder or (path.is_dir() and is_report(path))
        if not is_ours and not is_report(folder):
            raise FolderError(f"it holds {path.name!a}, so it is no report's; give a new folder with --report")
    for path in folder.rglob("*"):
        if not _is_text(path.name):
            raise FolderError(f"it holds {path.name!a}, whose name is not UTF-8")
        if not (path.is_file() or path.is_dir() or path.is_symlink()):
            raise FolderError(f"it holds {str(path.relative_to(folder))!r}, which is neither a file nor a folder")


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
