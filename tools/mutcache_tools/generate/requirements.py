"""The requirements of ``spec/*.rst``, as the typed enum that code uses and as a JSON lock.

A requirement is written once, inline in its area's chapter, with the directive ``req``::

    .. req:: MC-ALIAS-007
       :level: MUST
       :subject: model
       :phases: check
       :profile: dense
       :status: final

       The normative sentence.

The lock is also a guard. An ID that stands in it can be retired, but neither dropped nor given to another
requirement. This module imports nothing that it generates, so that a broken enum can be regenerated.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles

from mutcache_tools.generate import ROOT, Files, SourceError

SPEC = Path("spec")
LOCK = SPEC / "requirements.lock.json"
MODULE = Path("reference/mutcache/requirements.py")

#: The areas in the order of their chapters: ``spec/01-proto.rst``, ``spec/02-alias.rst`` and so on.
AREAS = ("PROTO", "ALIAS", "ACCESS", "SHAPE", "FLOW", "PLAN", "BIND", "DENSE", "PAGED", "QUANT", "MEM")
#: Chapters by file name; those with no area have no requirements.
CHAPTERS: Mapping[str, str] = {
    "00-introduction.rst": "",
    **{f"{number:02d}-{area.lower()}.rst": area for number, area in enumerate(AREAS, start=1)},
    "12-conformance.rst": "",
    "13-security.rst": "",
    "14-compatibility.rst": "",
    "15-implementations.rst": "",
    "16-changes.rst": "",
}
_ID = re.compile(r"MC-([A-Z]+)-(\d{3})")
#: The key words of RFC 2119. They oblige, so they stand in requirements and nowhere else.
_KEY_WORD = re.compile(r"\b(?:MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED|MAY|OPTIONAL)\b")

#: What each option may say: its enum, the enum's docstring, and the members in their order.
VOCABULARY: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "level": ("Level", "How binding a requirement is, in the sense of RFC 2119.", ("MUST", "SHOULD")),
    "subject": (
        "Subject",
        "Whom a requirement binds: a model, a runtime seen from outside, or only this project's own tools.",
        ("model", "runtime", "tool"),
    ),
    "phases": (
        "Phase",
        "When a violation may be caught. For a runtime under test the first three are one: loading.",
        ("decode", "check", "plan", "bind", "run"),
    ),
    "profile": (
        "Profile",
        "The part of the specification that a runtime may claim.",
        ("dense", "flow", "paged", "heterogeneous", "memory", "concurrency"),
    ),
    "status": (
        "Status",
        "Only a final requirement counts: a planned one has no cases yet, a retired one only keeps its number.",
        ("final", "planned", "retired"),
    ),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One requirement as written; ``line`` is that of its directive in ``spec/<chapter>``."""

    identifier: str
    level: str
    subject: str
    phases: tuple[str, ...]
    profile: str
    status: str
    sentence: str
    chapter: str
    line: int

    @property
    def number(self) -> int:
        """The number within the area."""
        return int(self.identifier[-3:])

    @property
    def member(self) -> str:
        """The name of its enum member."""
        return self.identifier.replace("-", "_")

    @property
    def text_hash(self) -> str:
        """SHA-256 of what obliges: level, subject, phases, profile and the sentence, one a line.

        White space is normalized first. Status and chapter are left out: they do not change the obligation.
        """
        lines = (self.level, self.subject, " ".join(self.phases), self.profile, self.sentence)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class _RequirementNode(nodes.General, nodes.Element):
    """What one directive says, unjudged; its children are the parsed text."""


class _RequirementDirective(Directive):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar = dict.fromkeys(VOCABULARY, directives.unchanged)

    def run(self) -> list[nodes.Node]:
        node = _RequirementNode(
            identifier=self.arguments[0], given=self.options, text=" ".join(" ".join(self.content).split())
        )
        node.line = self.lineno
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


directives.register_directive("req", _RequirementDirective)
roles.register_generic_role("doc", nodes.emphasis)  # the site makes a link of it


def _parse(text: str, where: str, problems: list[str]) -> nodes.document:
    """One chapter; what docutils complains about is a problem of the chapter."""
    settings = {
        "_disable_config": True,
        "halt_level": 5,
        "report_level": 2,
        "warning_stream": io.StringIO(),
        "file_insertion_enabled": False,
        "raw_enabled": False,
    }
    document = publish_doctree(text, source_path=where, settings_overrides=settings)
    messages = [*document.findall(nodes.system_message), *document.parse_messages, *document.transform_messages]
    for message in dict.fromkeys(message for message in messages if message["level"] >= settings["report_level"]):
        problem = message.children[0].astext() if message.children else message.astext()
        problems.append(f"{where}:{message.get('line', 1)}: {' '.join(problem.split())}")
    return document


def _stray_words(document: nodes.document) -> Iterator[tuple[int, str]]:
    """Key words outside requirements, with their lines; a literal speaks of the word and does not use it."""
    for text in document.findall(nodes.Text):
        word = _KEY_WORD.search(text)
        around = list(_around(text))
        if word and not any(
            isinstance(node, _RequirementNode | nodes.literal | nodes.literal_block | nodes.comment) for node in around
        ):
            line = next((node.line for node in around if node.line), 1)
            yield line, f"{word[0]} stands outside a requirement: give the sentence an ID, or say it in other words"


def _around(node: nodes.Node) -> Iterator[nodes.Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def _judge(node: _RequirementNode, chapter: str) -> Iterator[str]:
    """What is wrong with one directive, taken by itself."""
    identifier, given = node["identifier"], node["given"]
    match = _ID.fullmatch(identifier)
    if not match or match[1] not in AREAS or match[2] == "000":
        yield f"{identifier!r} is no requirement ID: MC-AREA-NNN, AREA one of {', '.join(AREAS)}, NNN from 001"
    elif match[1] != CHAPTERS[chapter]:
        yield f"{identifier} belongs in {SPEC}/{_chapter_of(match[1])}"
    for option, (_, _, allowed) in VOCABULARY.items():
        if option not in given:
            yield f"{identifier} lacks the option :{option}: ({', '.join(allowed)})"
            continue
        values = _phases(given) if option == "phases" else (given[option].strip(),)
        if unknown := [value for value in values if value not in allowed]:
            yield f"{identifier}: :{option}: cannot be {unknown[0]!r}; choose from {', '.join(allowed)}"
        elif list(values) != [value for value in allowed if value in values]:
            yield f"{identifier}: :{option}: {', '.join(values)} must be in the order {', '.join(allowed)}, each once"
    words = {word.replace("SHALL", "MUST") for word in _KEY_WORD.findall(re.sub("``.*?``", "", node["text"]))}
    level = "MUST" if "MUST" in words else "SHOULD"
    if not node["text"]:
        yield f"{identifier} has no normative sentence"
    elif any(not isinstance(child, nodes.paragraph) for child in node.children):
        yield f"{identifier}: the normative text must be plain paragraphs; lists and notes stand outside the directive"
    elif not words & {"MUST", "SHOULD"}:
        yield f"{identifier} obliges nobody: its text has neither MUST nor SHOULD"
    elif given.get("level", level) != level:
        yield f"{identifier} is of level {given['level']}, and its text says {level}"


def _phases(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(phase.strip() for phase in given["phases"].split(","))


def _chapter_of(area: str) -> str:
    return next(chapter for chapter, owner in CHAPTERS.items() if owner == area)


def _read_chapter(path: Path, problems: list[str]) -> list[Entry]:
    where = (SPEC / path.name).as_posix()
    entries = []
    document = _parse(path.read_text(encoding="utf-8"), where, problems)
    problems += [f"{where}:{line}: {problem}" for line, problem in _stray_words(document)]
    for node in document.findall(_RequirementNode):
        found = list(_judge(node, path.name))
        problems += [f"{where}:{node.line}: {problem}" for problem in found]
        if not found:
            entries.append(
                Entry(
                    identifier=node["identifier"],
                    phases=_phases(node["given"]),
                    sentence=node["text"],
                    chapter=path.name,
                    line=node.line or 1,
                    **{option: node["given"][option].strip() for option in VOCABULARY if option != "phases"},
                )
            )
    return entries


def _judge_numbers(entries: Iterable[Entry]) -> Iterator[str]:
    """Numbers are unique and, within an area, consecutive from 001."""
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.identifier, entry)
        if other is not entry:
            yield (
                f"{SPEC}/{entry.chapter}:{entry.line}: {entry.identifier} stands already at "
                f"{SPEC}/{other.chapter}:{other.line}"
            )
    for area in AREAS:
        numbered = {entry.number: entry for entry in first.values() if entry.chapter == _chapter_of(area)}
        for number, entry in sorted(numbered.items()):
            if number > 1 and number - 1 not in numbered:
                yield (
                    f"{SPEC}/{entry.chapter}:{entry.line}: {entry.identifier} leaves a gap: "
                    f"there is no MC-{area}-{number - 1:03d}"
                )


def read_specification(root: Path = ROOT) -> tuple[Entry, ...]:
    """Every requirement, by area and number.

    Raises SourceError with all problems found, each with its file and line.
    """
    present = {path.name: path for path in sorted((root / SPEC).glob("*.rst"))}
    problems = [
        f"{SPEC}/{name}:1: no chapter has this name; chapters are {', '.join(CHAPTERS)}"
        for name in present
        if name not in CHAPTERS
    ]
    entries: list[Entry] = []
    for name in CHAPTERS:
        if name in present:
            entries += _read_chapter(present[name], problems)
        else:
            problems.append(f"{SPEC}/{name}:1: the chapter is missing")
    # A directive that could not be read would look like a gap.
    problems = problems or list(_judge_numbers(entries))
    if problems:
        raise SourceError("\n".join(problems))
    return tuple(sorted(entries, key=lambda entry: (AREAS.index(entry.identifier.split("-")[1]), entry.number)))


def _locked(root: Path) -> Mapping[str, Mapping[str, object]]:
    path = root / LOCK
    if not path.is_file():
        return {}
    try:
        locked = json.loads(path.read_text(encoding="utf-8"))["requirements"]
        hashes = [entry["text_hash"] for entry in locked.values()] + [entry["status"] for entry in locked.values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{LOCK}:1: this is no lock ({error}); restore the committed file") from error
    if not all(isinstance(value, str) for value in hashes):
        raise SourceError(f"{LOCK}:1: this is no lock (a hash or status is no string); restore the committed file")
    return dict(locked)


def guard(entries: Iterable[Entry], locked: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse what would break a reference to a requirement that was published.

    Raises SourceError when an ID of the lock was dropped, was given to another requirement of the lock,
    or was retired and is now in use again or reworded.
    """
    now = {entry.identifier: entry for entry in entries}
    owner = {entry["text_hash"]: identifier for identifier, entry in locked.items()}
    problems = [
        f"{LOCK}: {identifier} was published and cannot be dropped; keep its directive, with :status: retired"
        for identifier in locked
        if identifier not in now
    ]
    for identifier, entry in now.items():
        where = f"{SPEC}/{entry.chapter}:{entry.line}"
        before = locked.get(identifier, {})
        previous = owner.get(entry.text_hash, identifier)
        if previous != identifier and previous in now and now[previous].status != "retired":
            problems.append(f"{where}: {identifier} has the text of {previous}; a requirement is never renumbered")
        if before.get("status") == "retired" and (
            entry.status != "retired" or entry.text_hash != before.get("text_hash")
        ):
            problems.append(
                f"{where}: {identifier} was retired and cannot be used again or reworded; take a new number"
            )
    if problems:
        raise SourceError("\n".join(problems))


def render_lock(entries: Iterable[Entry]) -> str:
    """The JSON lock."""
    requirements = {
        entry.identifier: {
            "level": entry.level,
            "subject": entry.subject,
            "phases": list(entry.phases),
            "profile": entry.profile,
            "status": entry.status,
            "chapter": entry.chapter,
            "text_hash": entry.text_hash,
        }
        for entry in entries
    }
    lock = {"generated": "from spec/*.rst by mutcache_tools.generate; do not edit", "requirements": requirements}
    return json.dumps(lock, indent=2) + "\n"


def render_module(entries: Iterable[Entry]) -> str:
    """The source of ``mutcache.requirements``."""
    entries = tuple(entries)
    enums = "".join(
        f'class {name}(enum.StrEnum):\n    """{doc}"""\n\n'
        + "".join(f'    {value.upper()} = "{value}"\n' for value in values)
        + "\n\n"
        for name, doc, values in VOCABULARY.values()
    )
    members = "".join(f'    {entry.member} = "{entry.identifier}"\n' for entry in entries)
    table = "".join(map(_render_entry, entries))
    return f"{_HEAD}{enums}{_REQUIREMENT}{members}{_PROPERTIES}_ENTRIES: dict[Req, Requirement] = {{\n{table}}}\n"


def _render_entry(entry: Entry) -> str:
    phases = ", ".join(f"Phase.{phase.upper()}" for phase in entry.phases)
    # 12 columns of indentation, two quotes, the space that joins a line to the next.
    lines = textwrap.wrap(entry.sentence, 120 - 12 - 3, break_long_words=False, break_on_hyphens=False)
    sentence = "".join(f"            {json.dumps(line, ensure_ascii=False)}\n" for line in _joined(lines))
    return f"""\
    Req.{entry.member}: Requirement(
        level=Level.{entry.level},
        subject=Subject.{entry.subject.upper()},
        phases=({phases},),
        profile=Profile.{entry.profile.upper()},
        status=Status.{entry.status.upper()},
        sentence=(
{sentence}        ),
        text_hash="{entry.text_hash}",
        chapter="{entry.chapter}",
    ),
"""


def _joined(lines: list[str]) -> list[str]:
    return [f"{line} " for line in lines[:-1]] + lines[-1:]


_HEAD = '''\
"""Requirements of the specification. Generated from spec/*.rst by mutcache_tools.generate; do not edit."""

from __future__ import annotations

import enum
from dataclasses import dataclass


'''

_REQUIREMENT = '''\
@dataclass(frozen=True, slots=True)
class Requirement:
    """One entry of the specification.

    Attributes:
        level: MUST or SHOULD.
        subject: whom it binds.
        phases: when a violation may be caught, in order.
        profile: the profile that it counts for.
        status: whether it counts.
        sentence: the normative text in reStructuredText, white space normalized.
        text_hash: SHA-256 of level, subject, phases, profile and sentence: it changes when the obligation does.
        chapter: file name of its chapter in ``spec/``.
    """

    level: Level
    subject: Subject
    phases: tuple[Phase, ...]
    profile: Profile
    status: Status
    sentence: str
    text_hash: str
    chapter: str


class Req(enum.StrEnum):
    """The permanent IDs. A number is never reused."""

'''

_PROPERTIES = '''
    @property
    def entry(self) -> Requirement:
        """The requirement's entry in the specification."""
        return _ENTRIES[self]

    @property
    def level(self) -> Level:
        """MUST or SHOULD."""
        return _ENTRIES[self].level


'''


def generate(root: Path = ROOT) -> Files:
    """The enum and the lock. Raises SourceError when the specification is malformed or breaks the lock."""
    entries = read_specification(root)
    guard(entries, _locked(root))
    return {MODULE: render_module(entries), LOCK: render_lock(entries)}
