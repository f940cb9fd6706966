"""``docs/landscape.rst`` and a page for each runtime, from the committed results; no runtime is needed for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Profile, Req, Status, Subject
from mutcache_tools.generate import ROOT, Files, SourceError
from mutcache_tools.landscape import RUNTIMES, Runtime, results
from mutcache_tools.landscape.claims import CLAIMS, NOTES

PAGE: Final = Path("docs/landscape.rst")
FOLDER: Final = Path("docs/landscape")
_NOTICE: Final = ".. Generated from docs/landscape/*.json by mutcache_tools.generate; do not edit."
_INTRODUCTION: Final = """
How runtimes that exist do on the requirements of this specification. Every figure here was measured, on the versions
and the day that stand below; ``make landscape`` measures again. Nothing is said of other versions.

A runtime that takes storage of the caller runs the suite, as any runtime can. One that owns its caches cannot be asked
through the suite; probes ask it through its own interface, and watch its memory. Stock runtimes get models as they are,
or lowered ones: standard operators for each update, and one buffer bound to the cache and to its result, as GenAI does.
"""
_LEGEND: Final = """
*pass*: every case and probe passed. *fail*: at least one failed; what is behind it is one click away. *part*: what
could be asked passed, the rest could not be asked. *na*: nothing could be asked, because the runtime lacks a type or
an operator, or because its interface has no word for it. A case counts for the requirement that it is about; a
negative case fails with its valid twin.
"""
#: How many causes of a requirement are told with their reason.
_TOLD: Final = 5


def generate() -> Files:
    """The page of the matrix, and one page for each runtime that has results."""
    found = {runtime.name: results.read(runtime.name, ROOT) for runtime in RUNTIMES}
    measured = {runtime: data for runtime in RUNTIMES if (data := found[runtime.name]) is not None}
    for runtime, data in measured.items():
        _check_claims(runtime, data)
    pages = {FOLDER / f"{runtime.name}.rst": _text(_runtime_page(runtime, data)) for runtime, data in measured.items()}
    return {PAGE: _text(_matrix_page(measured)), **pages}


def _check_claims(runtime: Runtime, data: Mapping[str, Any]) -> None:
    known = {observation["name"] for observation in data["observations"]}
    wanted = {name for claim in CLAIMS.get(runtime.name, ()) for name in claim.observations}
    if wanted - known:
        raise SourceError(
            f"{results.path_of(runtime.name, FOLDER)}: no observation {', '.join(sorted(wanted - known))}"
        )


def _text(lines: Iterator[str]) -> str:
    return "\n".join(lines).strip() + "\n"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is known of a runtime in one requirement: how many cases and observations had each status."""

    counts: Mapping[str, int]

    @property
    def word(self) -> str:
        """The sum of it in a word: a failure counts more than anything that passed."""
        if not self.counts:
            return ""
        if any(self.counts.get(status) for status in results.FAILURES):
            return "fail"
        if set(self.counts) == {"pass"}:
            return "pass"
        return "part" if "pass" in self.counts else "unsupported"

    @property
    def passed(self) -> str:
        """How many of how many passed."""
        return f"{self.counts.get('pass', 0)}/{sum(self.counts.values())}"


def cells(data: Mapping[str, Any]) -> dict[Req, Cell]:
    """The cells of a runtime. Where a probe has an answer, cases that could not be asked do not count."""
    counts: dict[Req, dict[str, int]] = {}
    for case, status in data["results"].items():
        requirement = Req("MC-" + case.partition("/")[0].upper())
        counts.setdefault(requirement, {}).setdefault(status, 0)
        counts[requirement][status] += 1
    for observation in data["observations"]:
        for requirement in map(Req, observation["requirements"]):
            known = counts.setdefault(requirement, {})
            if set(known) <= {"unsupported", "not-applicable"} and observation["status"] != "unsupported":
                known.clear()
            known[observation["status"]] = known.get(observation["status"], 0) + 1
    return {requirement: Cell(known) for requirement, known in counts.items()}


def _shown() -> list[Req]:
    """The requirements that something can be seen of from outside."""
    return [req for req in Req if req.entry.status is not Status.RETIRED and req.entry.subject is not Subject.TOOL]


def _matrix_page(measured: Mapping[Runtime, Mapping[str, Any]]) -> Iterator[str]:
    yield _NOTICE
    yield from _heading("The landscape", "=", over=True)
    yield _INTRODUCTION
    yield from _heading("Who was measured", "-")
    header = ("Runtime", "Version", "Day", *(profile.value for profile in _profiles(measured)))
    rows = [_row_of(runtime, data, _profiles(measured)) for runtime, data in measured.items()]
    yield from _table(header, rows, (24, 16, 12, *[12] * len(_profiles(measured))))
    absent = [runtime.title for runtime in RUNTIMES if runtime not in measured]
    if absent:
        yield f"Not measured yet: {', '.join(absent)}."
        yield ""
    yield from _heading("The matrix", "-")
    yield _LEGEND
    known = {runtime: cells(data) for runtime, data in measured.items()}
    for profile in Profile:
        wanted = [req for req in _shown() if req.entry.profile is profile]
        rows = [
            (f":mc:req:`{req.value}`", *(_cell(runtime, req, known[runtime]) for runtime in measured)) for req in wanted
        ]
        if rows and any(any(cell != "" for cell in row[1:]) for row in rows):
            yield from _heading(f"Profile {profile.value}", "~")
            titles = [f":doc:`{runtime.name} <landscape/{runtime.name}>`" for runtime in measured]
            yield from _table(("Requirement", *titles), rows, (20, *[16] * len(measured)))
    yield ".. toctree::"
    yield "   :hidden:"
    yield ""
    yield from (f"   landscape/{runtime.name}" for runtime in measured)


def _profiles(measured: Mapping[Runtime, Mapping[str, Any]]) -> list[Profile]:
    named = {profile["profile"] for data in measured.values() for profile in data["profiles"]}
    return [profile for profile in Profile if profile.value in named]


def _row_of(runtime: Runtime, data: Mapping[str, Any], profiles: Sequence[Profile]) -> tuple[str, ...]:
    verdicts = {profile["profile"]: profile for profile in data["profiles"]}
    passed = []
    for profile in profiles:
        verdict = verdicts.get(profile.value)
        passed.append(f"{verdict['passed']} of {verdict['required']}" if verdict else "")
    return (
        f":doc:`{runtime.title} <landscape/{runtime.name}>`",
        data["adapter"]["runtime_version"],
        data["measured"]["date"],
        *passed,
    )


def _link(requirement: Req) -> str:
    return f":mc:req:`{requirement.value}`"


def _label(runtime: Runtime, requirement: Req) -> str:
    return f"landscape-{runtime.name}-{requirement.value}".lower()


def _cell(runtime: Runtime, requirement: Req, known: Mapping[Req, Cell]) -> str:
    cell = known.get(requirement)
    if cell is None or not cell.word:
        return ""
    if cell.word == "pass":
        return f"pass {cell.passed}"
    word = "na" if cell.word == "unsupported" else f"{cell.word} {cell.passed}"
    return f":ref:`{word} <{_label(runtime, requirement)}>`"


def _runtime_page(runtime: Runtime, data: Mapping[str, Any]) -> Iterator[str]:
    yield _NOTICE
    yield from _heading(runtime.title, "=", over=True)
    measured = data["measured"]
    versions = ", ".join(f"{package} {version}" for package, version in measured["versions"].items())
    yield ""
    yield f"Measured on {measured['date']}, with {versions}, on {measured['machine']}."
    options = ", ".join(f"{key}={value}" for key, value in data["suite"]["options"].items())
    checks = ", ".join(data["adapter"]["checks"])
    yield ""
    yield f"Adapter ``{data['adapter']['adapter']}``, with {f'the options {options}' if options else 'no options'}."
    yield f"Checks that the adapter performs in the runtime's stead: {checks or 'none'}."
    if runtime.name in NOTES:
        yield ""
        yield NOTES[runtime.name]
    rows = [
        (profile["profile"], profile["verdict"], f"{profile['passed']} of {profile['required']}")
        for profile in data["profiles"]
    ]
    yield from _table(("Profile", "Verdict", "Required cases passed"), rows, (20, 25, 25))
    yield from _claims(runtime, data)
    causes: dict[Req, list[Mapping[str, Any]]] = {}
    for cause in data["causes"]:
        causes.setdefault(Req(cause["requirement"]), []).append(cause)
    seen: dict[Req, list[Mapping[str, Any]]] = {}
    for observation in data["observations"]:
        for requirement in observation["requirements"]:
            seen.setdefault(Req(requirement), []).append(observation)
    known = cells(data)
    yield from _heading("What did not pass", "-")
    for requirement in _shown():
        cell = known.get(requirement)
        if cell is not None and cell.word not in ("", "pass"):
            yield from _evidence(runtime, requirement, causes.get(requirement, ()), seen.get(requirement, ()))


def _claims(runtime: Runtime, data: Mapping[str, Any]) -> Iterator[str]:
    """The proposal's statements with the observations that bear on them, then the other observations."""
    observations = {observation["name"]: observation for observation in data["observations"]}
    if not observations:
        return
    claims = CLAIMS.get(runtime.name, ())
    if claims:
        yield from _heading("What the proposal says, and what was measured", "-")
        for claim in claims:
            yield ""
            yield f"*{claim.says}*"
            yield from _bullets(observations[name] for name in claim.observations)
    told = {name for claim in claims for name in claim.observations}
    others = [observation for name, observation in observations.items() if name not in told]
    if others:
        yield from _heading("What else was measured", "-")
        yield from _bullets(others)


def _bullets(observations: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield ""
    for observation in observations:
        basis = {"memory": " Judged by measured memory only.", "reported": " As the runtime itself returns it."}
        words = f"{observation['done']} {observation['seen']}{basis.get(observation['basis'], '')}"
        yield f"- **{observation['status']}**: {_escaped(words)}"


def _evidence(
    runtime: Runtime, requirement: Req, causes: Sequence[Mapping[str, Any]], observations: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    yield ""
    yield f".. _{_label(runtime, requirement)}:"
    yield from _heading(requirement.value, "~")
    yield ""
    yield f"{_link(requirement)}: {requirement.entry.sentence}"
    yield from _bullets(observations)
    ordered = sorted(causes, key=lambda cause: (cause["status"] not in results.FAILURES, -cause["count"]))
    for cause in ordered[:_TOLD]:
        more = cause["count"] - len(cause["cases"])
        names = ", ".join(f"``{case}``" for case in cause["cases"])
        names += f" and {more} more" if more else ""
        yield ""
        yield f"**{cause['status']}**, {cause['count']} {'case' if cause['count'] == 1 else 'cases'}: {names}"
        if "reason" not in cause:
            yield f"({_escaped(cause['cause'])})"
            continue
        yield ""
        yield ".. code-block:: text"
        yield ""
        yield from (f"   {line}".rstrip() for line in cause["reason"].splitlines())
    rest = sum(cause["count"] for cause in ordered[_TOLD:])
    if rest:
        yield ""
        yield f"And {rest} cases with other causes, which are in ``docs/landscape/{runtime.name}.json``."


def _heading(title: str, rule: str, *, over: bool = False) -> Iterator[str]:
    yield ""
    if over:
        yield rule * len(title)
    yield title
    yield rule * len(title)


def _escaped(text: str) -> str:
    """Text without markup."""
    return "".join(f"\\{letter}" if letter in "\\*`|_" else letter for letter in text)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    yield ""
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield f"   :widths: {' '.join(map(str, widths))}"
    yield ""
    for row in (header, *rows):
        for position, cell in enumerate(row):
            yield f"   {'*' if position == 0 else ' '} - {cell}".rstrip()
    yield ""
