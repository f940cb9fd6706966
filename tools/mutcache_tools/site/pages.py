"""The pages that are written before the build: one for each requirement, and the matrices over all of them.

They are made from the code and the corpus, so nobody keeps them; they lie in ``docs/requirements`` and
``docs/reference``, which are not committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mutcache.requirements import Req
from mutcache_tools import spec_history
from mutcache_tools.requirement_story import Place, requirement_story
from mutcache_tools.site import command_pages, diagrams
from mutcache_tools.site.domain import PAGES
from mutcache_tools.site.facts import Facts, collect
from mutcache_tools.site.rst import bullets, heading, link, literal, table

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[3]
#: Folder of the generated pages about commands and formats, relative to the root of the sources.
REFERENCE = "reference"
#: Folder of the drawings, relative to the root of the sources.
DIAGRAMS = "diagrams"
#: Where the files that pages refer to can be seen.
_SECTIONS: Mapping[str, str] = {
    "reference": "Reference",
    "conformance": "Suite and oracle",
    "kernels": "Kernels",
    "tests": "Tests",
}


def write(app: Sphinx) -> None:
    """Write the pages of this build; a file whose content stays keeps its time, so that it is not read again."""
    folder = Path(app.srcdir) / PAGES
    facts = collect(ROOT)
    made = {f"{requirement.value}.rst": page(requirement, facts) for requirement in Req}
    made["index.rst"] = index()
    made["coverage.rst"] = coverage(facts)
    made["faults.rst"] = faults_page(facts)
    _write(folder, made)
    reference = {"command-line.rst": command_pages.command_line(), "schemas.rst": command_pages.schemas(ROOT)}
    _write(Path(app.srcdir) / REFERENCE, reference)
    _write(
        Path(app.srcdir) / DIAGRAMS,
        {"alias-classes.svg": diagrams.alias_diagram(diagrams.example()), "lifetimes.svg": diagrams.lifetimes()},
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


def page(requirement: Req, facts: Facts) -> str:
    """The whole story of one requirement."""
    return "\n".join(_page(requirement, facts)) + "\n"


def _page(requirement: Req, facts: Facts) -> Iterator[str]:
    entry = requirement.entry
    yield from heading(requirement.value)
    yield from ("", entry.sentence, "")
    yield from table(
        ("", ""),
        [
            ("Level", entry.level.value),
            ("Binds", f"a {entry.subject.value}"),
            ("May be caught in", ", ".join(entry.phases)),
            ("Profile", entry.profile.value),
            ("Status", entry.status.value),
            ("Text", f":mc:req:`{requirement.value}` in ``spec/{entry.chapter}``"),
            ("SHA-256 of the text", literal(entry.text_hash)),
        ],
        widths=(20, 80),
        has_header=False,
    )
    story = requirement_story(requirement, ROOT)
    for section, title in _SECTIONS.items():
        places = [place for place in story.places.get(section, ()) if "/cases/" not in place.path]
        if places:
            yield from heading(title, "-")
            yield from bullets(_place(place) for place in places)
    cases = facts.cases.get(requirement, ())
    yield from heading("Cases", "-")
    if cases:
        yield ""
        yield f"{len(cases)} cases of the public corpus show it."
        yield from table(
            ("case", "profile", "what it shows"),
            [(literal(case.id), case.profile.value, case.title) for case in cases],
            widths=(30, 12, 58),
        )
    else:
        yield from ("", facts.reason_without_cases(requirement))
    faults = facts.faults.get(requirement, ())
    if faults:
        yield from heading("Faulty runtimes that it catches", "-")
        yield from table(
            ("runtime", "its fault", "cases failed"),
            [(literal(fault.runtime), fault.what, " ".join(map(literal, fault.cases))) for fault in faults],
            widths=(20, 40, 40),
        )
    yield from heading("History", "-")
    yield from bullets(history(requirement))
    yield from heading("Known runtimes", "-")
    statuses = facts.runtimes.get(requirement, ())
    if statuses:
        yield from table(
            ("runtime", "pass", "fail", "unsupported", "of"),
            [
                (status.runtime, str(status.passed), str(status.failed), str(status.unsupported), str(status.total))
                for status in statuses
            ],
            widths=(40, 15, 15, 15, 15),
        )
    else:
        yield from ("", "No runtime has been measured on it yet.")


def history(requirement: Req) -> Iterator[str]:
    """The versions of the specification that changed the requirement, and what is not published yet."""
    before = None
    for version in spec_history.versions(ROOT):
        now = version.texts.get(requirement.value)
        if now != before:
            what = "added" if before is None else "retired" if now is None else "reworded"
            yield f"{what} in version {version.number}, {version.date}" + _reason(requirement, what, version.number)
        before = now
    current = spec_history.texts().get(requirement.value)
    if current != before:
        what = "added" if before is None else "retired" if current is None else "reworded"
        yield f"{what} since then, not published yet" + _reason(requirement, what, "")


def _reason(requirement: Req, kind: str, version: str) -> str:
    reasons = (
        change.why
        for change in spec_history.changes(ROOT)
        if (change.requirement, change.kind, change.version) == (requirement, kind, version)
    )
    reason = next(reasons, "")
    return f": {reason}" if reason else ""


def _place(place: Place) -> str:
    symbol = f" {literal(place.symbol)}" if place.symbol else ""
    return f"{literal(f'{place.path}:{place.line}')}{symbol}"


def index() -> str:
    """All requirements by area."""
    lines = [
        *heading("Requirements"),
        "",
        "Each page tells where a requirement is written, implemented and tested.",
        "",
    ]
    areas = dict.fromkeys(requirement.value.split("-")[1] for requirement in Req)
    for area in areas:
        lines += heading(area, "-")
        lines += table(
            ("ID", "level", "profile", "sentence"),
            [
                (
                    f":doc:`{requirement.value}`",
                    requirement.entry.level.value,
                    requirement.entry.profile.value,
                    requirement.entry.sentence,
                )
                for requirement in Req
                if requirement.value.split("-")[1] == area
            ],
            widths=(18, 10, 14, 58),
        )
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {requirement.value}" for requirement in Req), ""]
    return "\n".join(lines)


def coverage(facts: Facts) -> str:
    """Requirements against what shows them, with the reason for each gap."""
    lines = [
        *heading("Coverage"),
        "",
        "What stands behind each requirement: cases of the public corpus, negative ones among them, and the faulty",
        "runtimes that fail by it. A requirement without cases says why.",
    ]
    rows = []
    for requirement in Req:
        cases = facts.cases.get(requirement, ())
        rows.append(
            (
                f":doc:`{requirement.value}`",
                str(len(cases)),
                str(sum(case.is_negative for case in cases)),
                str(len(facts.faults.get(requirement, ()))),
                "" if cases else facts.reason_without_cases(requirement),
            )
        )
    lines += table(("ID", "cases", "negative", "faulty runtimes", "why none"), rows, widths=(18, 10, 12, 16, 44))
    lines += ["", link("The faulty runtimes", f"/{PAGES}/faults"), ""]
    return "\n".join(lines)


def faults_page(facts: Facts) -> str:
    """Every faulty runtime, with what finds it out."""
    lines = [
        *heading("Faulty runtimes"),
        "",
        "A conformance suite is worth what it notices. Each of these is the reference runtime with one fault; each",
        "fails the cases named here, and passes cases that its fault has nothing to do with. Tests run them all.",
    ]
    rows = [
        (
            literal(fault.runtime),
            fault.what,
            f":doc:`{fault.requirement.value}`",
            " ".join(map(literal, fault.cases)),
            fault.status,
        )
        for requirement in Req
        for fault in facts.faults.get(requirement, ())
    ]
    lines += table(("runtime", "its fault", "requirement", "cases failed", "status"), rows, widths=(16, 36, 14, 26, 8))
    return "\n".join(lines) + "\n"
