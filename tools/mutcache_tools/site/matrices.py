"""The pages over all requirements: the index, what tests each, what covers each, and what the suite notices."""

from __future__ import annotations

from collections.abc import Mapping

from mutcache.requirements import Req
from mutcache_tools.requirement_story import Place, Story
from mutcache_tools.site.domain import PAGES
from mutcache_tools.site.facts import Facts
from mutcache_tools.site.requirement_page import reason_without_places
from mutcache_tools.site.rst import heading, link, literal, plain, table


def _by_area() -> Mapping[str, list[Req]]:
    areas: dict[str, list[Req]] = {}
    for requirement in Req:
        areas.setdefault(requirement.value.split("-")[1], []).append(requirement)
    return areas


def _page_of(requirement: Req) -> str:
    return link(requirement.value, f"/{PAGES}/{requirement.value}")


def index() -> str:
    """All requirements by area."""
    areas = _by_area()
    lines = [
        *heading("All requirements"),
        "",
        f"{len(Req)} requirements. The page of each tells where it is written, implemented and tested, and how known",
        "runtimes do on it.",
        "",
        " · ".join(f":ref:`{area} <requirements-{area.lower()}>`" for area in areas),
    ]
    for area, requirements in areas.items():
        lines += ["", f".. _requirements-{area.lower()}:", *heading(area, "-")]
        rows = [
            (
                _page_of(requirement),
                requirement.entry.level.value,
                requirement.entry.profile.value,
                requirement.entry.sentence,
            )
            for requirement in requirements
        ]
        lines += table(("ID", "level", "profile", "sentence"), rows, widths=(17, 9, 16, 58))
    return "\n".join(lines) + "\n"


def tests(stories: Mapping[Req, Story], facts: Facts) -> str:
    """Each requirement against the rule or place that keeps it, and what tests that."""
    lines = [
        *heading("Requirements and tests"),
        "",
        "Where each requirement is kept in the reference, and how many places of unit tests, cases of the suite and",
        "faulty runtimes speak of it. The page behind the ID names them all.",
    ]
    for area, requirements in _by_area().items():
        rows = []
        for requirement in requirements:
            places = stories[requirement].places
            rows.append(
                (
                    _page_of(requirement),
                    _kept_in(places.get("reference", ())) or reason_without_places(requirement, facts),
                    str(len(places.get("tests", ()))),
                    str(len(facts.cases.get(requirement, ()))),
                    str(len(facts.faults.get(requirement, ()))),
                    str(len(places.get("kernels", ()))),
                )
            )
        lines += heading(area, "-")
        lines += table(("ID", "kept in", "unit tests", "cases", "faults", "kernels"), rows, widths=(17, 47, 9, 9, 9, 9))
    return "\n".join(lines) + "\n"


def _kept_in(places: tuple[Place, ...]) -> str:
    """The one place to look at first: the function that bears the ID, or the first one that names it."""
    if not places:
        return ""
    named = [place for place in places if "/rules/" in place.path and place.symbol]
    place = (named or list(places))[0]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{literal(place.path.removeprefix('reference/'))} {literal(place.symbol)}".rstrip() + more


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
                _page_of(requirement),
                requirement.entry.profile.value,
                str(len(cases)),
                str(sum(case.is_negative for case in cases)),
                str(len(facts.faults.get(requirement, ()))),
                "" if cases else facts.reason_without_cases(requirement),
            )
        )
    header = ("ID", "profile", "cases", "negative", "faulty runtimes", "why none")
    lines += table(header, rows, widths=(17, 16, 8, 10, 10, 39))
    lines += ["", link("The faulty runtimes", f"/{PAGES}/faults"), ""]
    return "\n".join(lines)


def faults(facts: Facts) -> str:
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
            plain(fault.what),
            _page_of(fault.requirement),
            " ".join(map(literal, fault.cases)),
            fault.status,
        )
        for requirement in Req
        for fault in facts.faults.get(requirement, ())
        if fault.requirement is requirement
    ]
    header = ("runtime", "its fault", "requirement", "cases failed", "status")
    lines += table(header, rows, widths=(19, 30, 17, 26, 8))
    return "\n".join(lines) + "\n"
