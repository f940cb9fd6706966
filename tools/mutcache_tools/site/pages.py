"""The pages that are written before the build: one for each requirement, and the matrices over all of them.

They are made from the code and the corpus, so nobody keeps them; they lie in ``docs/requirements`` and
``docs/reference``, which are not committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mutcache.requirements import Req
from mutcache_tools.requirement_story import requirement_story
from mutcache_tools.site import command_pages, diagrams, matrices
from mutcache_tools.site.domain import PAGES
from mutcache_tools.site.facts import collect
from mutcache_tools.site.page_diagram import page_tables
from mutcache_tools.site.requirement_page import page

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[3]
#: Folder of the generated pages about commands and formats, relative to the root of the sources.
REFERENCE = "reference"
#: Folder of the drawings, relative to the root of the sources.
DIAGRAMS = "diagrams"


def write(app: Sphinx) -> None:
    """Write the pages of this build; a file whose content stays keeps its time, so that it is not read again."""
    facts = collect(ROOT)
    stories = {requirement: requirement_story(requirement, ROOT) for requirement in Req}
    made = {f"{name.value}.rst": page(name, story, facts, ROOT) for name, story in stories.items()}
    made["index.rst"] = matrices.index()
    made["tests.rst"] = matrices.tests(stories, facts)
    made["coverage.rst"] = matrices.coverage(facts)
    made["faults.rst"] = matrices.faults(facts)
    _write(Path(app.srcdir) / PAGES, made)
    reference = {"command-line.rst": command_pages.command_line(), "schemas.rst": command_pages.schemas(ROOT)}
    _write(Path(app.srcdir) / REFERENCE, reference)
    _write(
        Path(app.srcdir) / DIAGRAMS,
        {
            "alias-classes.svg": diagrams.alias_diagram(diagrams.example()),
            "lifetimes.svg": diagrams.lifetimes(),
            "page-tables.svg": page_tables(),
        },
    )


def _write(folder: Path, made: Mapping[str, str]) -> None:
    """Make ``folder`` hold these pages and no others."""
    folder.mkdir(exist_ok=True)
    for stale in {path.name for path in folder.iterdir()} - made.keys():
        (folder / stale).unlink()
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
