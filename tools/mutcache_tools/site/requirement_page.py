"""The page of one requirement: its sentence, and everything that stands behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mutcache.requirements import Req, Status
from mutcache_conformance.case import Case
from mutcache_tools import spec_history
from mutcache_tools.requirement_story import Place, Story
from mutcache_tools.site.domain import PAGES
from mutcache_tools.site.facts import Facts, Fault, Score
from mutcache_tools.site.rst import bullets, folded, heading, link, literal, plain, table

#: Sections of a story, as the page calls them.
_SECTIONS: Final[Mapping[str, str]] = {
    "reference": "Reference",
    "conformance": "Suite and oracle",
    "kernels": "Kernels",
    "tests": "Tests",
}
#: What is longer is folded: the page is to be seen whole.
_LONG: Final = 12


def page(requirement: Req, story: Story, facts: Facts, root: Path) -> str:
    """The whole story of one requirement."""
    return "\n".join(_page(requirement, story, facts, root)) + "\n"


def _page(requirement: Req, story: Story, facts: Facts, root: Path) -> Iterator[str]:
    # No page has it in its table of contents: a hundred of them would fill the sidebar of every page.
    yield from (":orphan:", "", *_way(requirement))
    yield from heading(requirement.value)
    yield from ("", requirement.entry.sentence, "", *_kind(requirement))
    yield from _reference(requirement, story, facts)
    for section in ("conformance", "kernels", "tests"):
        places = [place for place in story.places.get(section, ()) if "/cases/" not in place.path]
        if places:
            yield from heading(_SECTIONS[section], "-")
            yield from _places(places)
    yield from heading("Cases", "-")
    yield from _cases(requirement, facts)
    if faults := facts.faults.get(requirement):
        yield from heading("Faulty runtimes that it catches", "-")
        yield from _faults(faults)
    yield from heading("Known runtimes", "-")
    yield from _runtimes(requirement, facts.runtimes.get(requirement, ()))
    yield from heading("History", "-")
    yield from bullets(history(requirement, root))


def _way(requirement: Req) -> Iterator[str]:
    """Where the page is: up, and to its neighbours."""
    everyone = list(Req)
    place = everyone.index(requirement)
    area = requirement.value.split("-")[1]
    before, after = everyone[place - 1 : place] if place else [], everyone[place + 1 : place + 2]
    steps = [
        *(link(f"← {other.value}", f"/{PAGES}/{other.value}") for other in before),
        f":ref:`{area} <requirements-{area.lower()}>`",
        *(link(f"{other.value} →", f"/{PAGES}/{other.value}") for other in after),
    ]
    yield from (".. container:: way", "", f"   {' · '.join(steps)}")


def _kind(requirement: Req) -> Iterator[str]:
    entry = requirement.entry
    rows = [
        ("Level", entry.level.value),
        ("Binds", f"a {entry.subject.value}"),
        ("May be caught in", ", ".join(entry.phases)),
        ("Profile", entry.profile.value),
        ("Status", entry.status.value),
        ("Text", f":mc:req:`{requirement.value}` in ``spec/{entry.chapter}``"),
        ("SHA-256 of the text", f"{literal(entry.text_hash[:16])}..."),
    ]
    yield from table(("", ""), rows, widths=(20, 80), has_header=False)


def _reference(requirement: Req, story: Story, facts: Facts) -> Iterator[str]:
    yield from heading(_SECTIONS["reference"], "-")
    if places := story.places.get("reference"):
        yield from _places(places)
    else:
        yield from ("", reason_without_places(requirement, facts))


def reason_without_places(requirement: Req, facts: Facts) -> str:
    """Why nothing in the reference bears the requirement's ID."""
    if requirement.entry.status is not Status.FINAL:
        return facts.reason_without_cases(requirement)
    done_by = facts.done_by(requirement)
    if not done_by:
        return "None."
    return f"It says what is done, so nothing is refused by it: {literal(done_by)} does it."


def _places(places: Sequence[Place]) -> Iterator[str]:
    listed = bullets(_place(place) for place in places)
    yield from folded(f"{len(places)} places", listed) if len(places) > _LONG else listed


def _place(place: Place) -> str:
    symbol = f" {literal(place.symbol)}" if place.symbol else ""
    return f"{literal(f'{place.path}:{place.line}')}{symbol}"


def _cases(requirement: Req, facts: Facts) -> Iterator[str]:
    cases = facts.cases.get(requirement, ())
    if not cases:
        yield from ("", facts.reason_without_cases(requirement))
        return
    own = [case for case in cases if case.requirements[0] is requirement]
    others = [case for case in cases if case.requirements[0] is not requirement]
    negative = sum(case.is_negative for case in own)
    yield ""
    yield f"Cases of the public corpus: {len(own)} about it, of which {negative} negative,"
    yield f"and {len(others)} more that show it as well."
    for title, group in (("Cases about it", own), ("Further cases", others)):
        if group:
            listed = _case_table(group)
            yield from folded(f"{title}: {len(group)}", listed) if len(group) > _LONG or group is others else listed


def _case_table(cases: Sequence[Case]) -> Iterator[str]:
    return table(
        ("case", "profile", "what it shows"),
        [(literal(case.id), case.profile.value, plain(case.title)) for case in cases],
        widths=(32, 12, 56),
    )


def _faults(faults: Sequence[Fault]) -> Iterator[str]:
    return table(
        ("runtime", "its fault", "cases failed"),
        [(literal(fault.runtime), plain(fault.what), " ".join(map(literal, fault.cases))) for fault in faults],
        widths=(20, 40, 40),
    )


def _runtimes(requirement: Req, scores: Sequence[Score]) -> Iterator[str]:
    if not scores:
        yield from ("", "No runtime has been measured on it yet.")
        return
    yield from table(
        ("runtime", "version", "pass", "fail", "unsupported", "of", ""),
        [
            (
                link(score.title, f"/landscape/{score.runtime}"),
                score.version,
                *(str(number) for number in (score.passed, score.failed, score.unsupported, score.total)),
                f":ref:`why <landscape-{score.runtime}-{requirement.value.lower()}>`" if score.has_causes else "",
            )
            for score in scores
        ],
        widths=(34, 22, 8, 8, 14, 7, 7),
    )
    probes = [(score, status, seen) for score in scores for status, seen in score.probes]
    if probes:
        yield from ("", "What was seen of it through a runtime's own interface:")
        yield from bullets(f"{score.title}, **{status}**: {plain(seen)}" for score, status, seen in probes)


def history(requirement: Req, root: Path) -> Iterator[str]:
    """The versions of the specification that changed the requirement, and what is not published yet."""
    before = None
    for version in spec_history.versions(root):
        now = version.texts.get(requirement.value)
        if now != before:
            what = "added" if before is None else "retired" if now is None else "reworded"
            reason = _reason(requirement, what, version.number, root)
            yield f"{what} in version {version.number}, {version.date}{reason}"
        before = now
    current = spec_history.texts().get(requirement.value)
    if current != before:
        what = "added" if before is None else "retired" if current is None else "reworded"
        yield f"{what} since the last version, not published yet{_reason(requirement, what, '', root)}"


def _reason(requirement: Req, kind: str, version: str, root: Path) -> str:
    reasons = (
        change.why
        for change in spec_history.changes(root)
        if (change.requirement, change.kind, change.version) == (requirement, kind, version)
    )
    reason = next(reasons, "")
    return f": {plain(reason)}" if reason else ""
