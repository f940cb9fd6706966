"""What the pages of the site show must work: their code runs, page by page, and the interface is described whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import mutcache

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Pages whose code has a test of its own, which looks closer.
TESTED_ELSEWHERE = {"first-adapter.rst"}
PAGES = sorted(path for path in DOCS.glob("*.rst") if path.name not in TESTED_ELSEWHERE)
#: What a reader puts something of their own in place of; such a block is shown and not run.
PLACEHOLDERS = re.compile(r"\bmy_\w+|\b[A-Z]{3,}\b")
BLOCK = re.compile(r"^\.\. code-block:: (python|console)\n(?:   :.*\n)*\n((?:   .*\n|\n)+)", re.MULTILINE)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and code of each block, in order."""
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match[1] == "console" and PLACEHOLDERS.search(match[2]):
            continue
        yield match[1], textwrap.dedent(match[2]).strip() + "\n"


def script(language: str, code: str) -> list[str]:
    """How a block is run. Of a console block the lines after ``$`` are commands, and their continuations."""
    if language == "python":
        return [sys.executable, "-c", code]
    commands = re.findall(r"^\$ (.*(?:\\\n.*)*)", code, re.MULTILINE)
    assert commands, "a console block shows no command"
    return ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    (tmp_path / "conformance").symlink_to(ROOT / "conformance")
    for language, code in blocks(page):
        finished = subprocess.run(
            script(language, code),
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert finished.returncode == 0, f"{code}\n{finished.stdout}\n{finished.stderr}"


def test_every_public_name_is_described() -> None:
    page = (DOCS / "api.rst").read_text(encoding="utf-8")
    missing = [name for name in mutcache.__all__ if not re.search(rf"\b{name}\b", page)]
    assert not missing


def test_every_page_is_reachable() -> None:
    index = (DOCS / "index.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w/-]+)$", index, re.MULTILINE))
    pages = {path.stem for path in DOCS.glob("*.rst")} - {"index", "print"}
    chapters = {f"spec/{path.stem}" for path in (ROOT / "spec").glob("*.rst")}
    assert (pages | chapters) <= listed
