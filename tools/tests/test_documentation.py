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
#: What a reader puts something of their own in place of; such a block is shown and not run, and neither is one that
#: would change the environment.
SHOWN = {"console": re.compile(r"\bmy_\w+|\b[A-Z]{3,}\b|\bpip install\b"), "python": re.compile(r"\bmy_\w+")}
#: A block with a caption is the content of the file that the caption names.
BLOCK = re.compile(
    r"^\.\. code-block:: (python|console)\n(?:   :caption: (\S+)\n)?(?:   :.*\n)*\n((?:   .*\n|\n)+)", re.MULTILINE
)


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """Language, name of the file ("" if the block is to be run) and code of each block, in order."""
    for language, file, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if not SHOWN[language].search(code):
            yield language, file, textwrap.dedent(code).strip() + "\n"


def script(language: str, code: str) -> list[str]:
    """How a block is run. Of a console block the lines after ``$`` are commands, and their continuations."""
    if language == "python":
        return [sys.executable, "-c", code]
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)", code, re.MULTILINE)
    assert commands, "a console block shows no command"
    return ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (tmp_path / "conformance").mkdir()
    for module in (ROOT / "conformance").glob("test_*.py"):
        (tmp_path / "conformance" / module.name).symlink_to(module)
    for language, file, code in blocks(page):
        if file:
            (tmp_path / file).write_text(code, encoding="utf-8")
            continue
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
