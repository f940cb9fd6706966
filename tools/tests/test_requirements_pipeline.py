from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutcache.requirements import Req, Status
from mutcache_tools import generate
from mutcache_tools.generate import SourceError, __main__, requirements, stale_files, write_files

AREAS = ("proto", "alias", "access", "shape", "flow", "plan", "bind", "dense", "paged", "quant", "mem")
CHECKOUT = Path(__file__).parents[2]


def directive(identifier: str, text: str = "", **options: str) -> str:
    fields = {"level": "MUST", "subject": "model", "phases": "check", "profile": "dense", "status": "final"} | options
    lines = [f".. req:: {identifier}", *(f"   :{name}: {value}" for name, value in fields.items() if value)]
    return "\n".join([*lines, "", f"   {text or f'{identifier} MUST hold.'}", "", ""])


class Specification:
    """A checkout with nothing but a small specification: one requirement an area, and the chapters that have none."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "spec").mkdir()
        for chapter in (chapter for chapter, area in requirements.CHAPTERS.items() if not area):
            self.write(chapter, "")
        for number, area in enumerate(AREAS, start=1):
            self.write(f"{number:02d}-{area}.rst", directive(f"MC-{area.upper()}-001"))

    def write(self, name: str, body: str) -> None:
        (self.root / "spec" / name).write_text(f"Chapter\n=======\n\n{body}", encoding="utf-8")

    def write_alias(self, *directives: str) -> None:
        self.write("02-alias.rst", "".join(directives))

    def entry(self, identifier: str) -> requirements.Entry:
        return next(entry for entry in requirements.read_specification(self.root) if entry.identifier == identifier)

    def regenerate(self) -> None:
        write_files(requirements.generate(self.root), self.root)


@pytest.fixture
def specification(tmp_path: Path) -> Specification:
    return Specification(tmp_path)


def load_module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = importlib.util.spec_from_file_location("generated_requirements", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, module)  # dataclasses look their module up
    found.loader.exec_module(module)
    return module


def test_a_directive_is_read_whole(specification: Specification) -> None:
    text = "A value SHOULD\n   be ``one``,\n\n   and   only one."
    specification.write_alias(
        directive("MC-ALIAS-001", text, level="SHOULD", phases="bind, run", subject="runtime", status="planned")
    )
    entry = specification.entry("MC-ALIAS-001")
    assert entry.sentence == "A value SHOULD be ``one``, and only one."
    assert (entry.level, entry.subject, entry.phases) == ("SHOULD", "runtime", ("bind", "run"))
    assert (entry.profile, entry.status, entry.chapter, entry.line) == ("dense", "planned", "02-alias.rst", 4)


def test_entries_are_ordered_by_area_and_number(specification: Specification) -> None:
    specification.write_alias(*(directive(f"MC-ALIAS-{number:03d}") for number in (2, 3, 1)))
    identifiers = [entry.identifier for entry in requirements.read_specification(specification.root)]
    assert identifiers[:5] == ["MC-PROTO-001", "MC-ALIAS-001", "MC-ALIAS-002", "MC-ALIAS-003", "MC-ACCESS-001"]
    assert len(identifiers) == len(AREAS) + 2


def test_the_module_and_the_lock_say_what_the_chapters_say(
    specification: Specification, monkeypatch: pytest.MonkeyPatch
) -> None:
    specification.write_alias(directive("MC-ALIAS-001", "It MUST.", phases="check, plan"), directive("MC-ALIAS-002"))
    specification.regenerate()
    module = load_module(specification.root / "reference/mutcache/requirements.py", monkeypatch)
    assert len(module.Req) == len(AREAS) + 1
    entry = module.Req("MC-ALIAS-001").entry
    assert entry.sentence == "It MUST."
    assert entry.phases == (module.Phase.CHECK, module.Phase.PLAN)
    assert module.Req.MC_ALIAS_001.level is module.Level.MUST
    expected_hash = hashlib.sha256(b"MUST\nmodel\ncheck plan\ndense\nIt MUST.").hexdigest()
    assert entry.text_hash == expected_hash
    lock = json.loads((specification.root / "spec/requirements.lock.json").read_text(encoding="utf-8"))
    assert lock["requirements"]["MC-ALIAS-001"] == {
        "level": "MUST",
        "subject": "model",
        "phases": ["check", "plan"],
        "profile": "dense",
        "status": "final",
        "chapter": "02-alias.rst",
        "text_hash": expected_hash,
    }


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({"text": "MC-ALIAS-001 MUST  hold."}, False),  # white space
        ({"status": "planned"}, False),
        ({"text": "MC-ALIAS-001 MUST hold!"}, True),
        ({"level": "SHOULD", "text": "MC-ALIAS-001 SHOULD hold."}, True),
        ({"subject": "tool"}, True),
        ({"phases": "check, run"}, True),
        ({"profile": "paged"}, True),
    ],
)
def test_the_hash_moves_with_the_obligation(specification: Specification, options: dict[str, str], moves: bool) -> None:
    before = specification.entry("MC-ALIAS-001").text_hash
    specification.write_alias(directive("MC-ALIAS-001", **options))
    assert (specification.entry("MC-ALIAS-001").text_hash != before) is moves


@given(st.lists(st.text(min_size=1, max_size=200).filter(lambda word: word.split() == [word]), min_size=1, max_size=30))
def test_the_module_reproduces_any_sentence(words: list[str]) -> None:
    sentence = " ".join(words)
    entry = requirements.Entry(
        "MC-ALIAS-001", "MUST", "model", ("check",), "dense", "final", sentence, "02-alias.rst", 1
    )
    keywords = [
        node for node in ast.walk(ast.parse(requirements.render_module([entry]))) if isinstance(node, ast.keyword)
    ]
    values = [ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg == "sentence"]
    assert values == [sentence]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (directive("ALIAS-1"), "4: 'ALIAS-1' is no requirement ID"),
        (directive("MC-ALIAS-1"), "4: 'MC-ALIAS-1' is no requirement ID"),
        (directive("MC-ALIAS-000"), "4: 'MC-ALIAS-000' is no requirement ID"),
        (directive("MC-CACHE-001"), "4: 'MC-CACHE-001' is no requirement ID"),
        (directive("MC-ALIAS-001 extra"), "4: 'MC-ALIAS-001 extra' is no requirement ID"),
        (directive("MC-DENSE-001"), "4: MC-DENSE-001 belongs in spec/08-dense.rst"),
        (directive("MC-ALIAS-001") * 2, "13: MC-ALIAS-001 stands already at spec/02-alias.rst:4"),
        (
            directive("MC-ALIAS-001") + directive("MC-ALIAS-003"),
            "13: MC-ALIAS-003 leaves a gap: there is no MC-ALIAS-002",
        ),
        (directive("MC-ALIAS-002"), "4: MC-ALIAS-002 leaves a gap: there is no MC-ALIAS-001"),
        (directive("MC-ALIAS-001", level=""), "4: MC-ALIAS-001 lacks the option :level: (MUST, SHOULD)"),
        (directive("MC-ALIAS-001", level="may"), "4: MC-ALIAS-001: :level: cannot be 'may'; choose from MUST, SHOULD"),
        (directive("MC-ALIAS-001", subject="user"), "4: MC-ALIAS-001: :subject: cannot be 'user'"),
        (directive("MC-ALIAS-001", profile="Dense"), "4: MC-ALIAS-001: :profile: cannot be 'Dense'"),
        (directive("MC-ALIAS-001", status="draft"), "4: MC-ALIAS-001: :status: cannot be 'draft'"),
        (directive("MC-ALIAS-001", phases="check, load"), "4: MC-ALIAS-001: :phases: cannot be 'load'"),
        (directive("MC-ALIAS-001", phases="check,"), "4: MC-ALIAS-001: :phases: cannot be ''"),
        (directive("MC-ALIAS-001", phases="run, check"), "4: MC-ALIAS-001: :phases: run, check must be in the order"),
        (directive("MC-ALIAS-001", phases="run, run"), "4: MC-ALIAS-001: :phases: run, run must be in the order"),
        (
            directive("MC-ALIAS-001").replace("   MC-ALIAS-001 MUST hold.\n", ""),
            "4: MC-ALIAS-001 has no normative sentence",
        ),
        (directive("MC-ALIAS-001", "* one\n   * two"), "4: MC-ALIAS-001: the normative text must be plain paragraphs"),
        (directive("MC-ALIAS-001", ".. note:: x"), "4: MC-ALIAS-001: the normative text must be plain paragraphs"),
        (directive("MC-ALIAS-001", "It is so."), "4: MC-ALIAS-001 obliges nobody"),
        (directive("MC-ALIAS-001", "It ``MUST`` be so."), "4: MC-ALIAS-001 obliges nobody"),
        (directive("MC-ALIAS-001", "It SHOULD be so."), "4: MC-ALIAS-001 is of level MUST, and its text says SHOULD"),
        (directive("MC-ALIAS-001") + "It MAY be so.\n", "13: MAY stands outside a requirement"),
        (directive("MC-ALIAS-001") + ".. note::\n\n   It **MUST** be.\n", "15: MUST stands outside a requirement"),
        (directive("MC-ALIAS-001", color="red"), '4: Error in "req" directive: unknown option: "color".'),
        (".. req::\n   :level: MUST\n\n   x\n", '4: Error in "req" directive: 1 argument(s) required, 0 supplied.'),
        (directive("MC-ALIAS-001") + ":nope:`x`\n", '13: Unknown interpreted text role "nope"'),
        (directive("MC-ALIAS-001") + ".. nope::\n", '13: Unknown directive type "nope"'),
        (directive("MC-ALIAS-001") + "see nowhere_\n", '13: Unknown target name: "nowhere".'),
    ],
)
def test_a_malformed_chapter_is_refused_where_it_is_wrong(
    specification: Specification, body: str, problem: str
) -> None:
    specification.write_alias(body)
    with pytest.raises(SourceError) as caught:
        requirements.generate(specification.root)
    assert any(line.startswith(f"spec/02-alias.rst:{problem}") for line in str(caught.value).splitlines()), caught.value


def test_a_chapter_may_speak_of_the_key_words(specification: Specification) -> None:
    specification.write("00-introduction.rst", "``MUST`` obliges, and ``MUST_ALIAS`` is a kind, as MUST_ALIAS is.\n")
    assert requirements.read_specification(specification.root)


def test_all_problems_are_reported_at_once(specification: Specification) -> None:
    specification.write_alias(directive("MC-ALIAS-001", level="may", subject="user"))
    specification.write("08-dense.rst", directive("MC-DENSE-1"))
    specification.write("99-more.rst", "")
    (specification.root / "spec/11-mem.rst").unlink()
    with pytest.raises(SourceError) as caught:
        requirements.read_specification(specification.root)
    lines = str(caught.value).splitlines()
    assert len(lines) == 6, lines
    assert any(line.startswith("spec/99-more.rst:1: no chapter has this name") for line in lines)
    assert "spec/11-mem.rst:1: the chapter is missing" in lines


def test_a_changed_sentence_is_stale_until_regenerated(specification: Specification) -> None:
    specification.regenerate()
    assert stale_files(requirements.generate(specification.root), specification.root) == []
    specification.write_alias(directive("MC-ALIAS-001", "Another obligation MUST hold."))
    stale = stale_files(requirements.generate(specification.root), specification.root)
    assert stale == [Path("reference/mutcache/requirements.py"), Path("spec/requirements.lock.json")]
    specification.regenerate()
    assert stale_files(requirements.generate(specification.root), specification.root) == []


def refusal(specification: Specification) -> str:
    with pytest.raises(SourceError) as caught:
        requirements.generate(specification.root)
    return str(caught.value)


def test_a_published_requirement_cannot_be_dropped(specification: Specification) -> None:
    specification.write_alias(directive("MC-ALIAS-001"), directive("MC-ALIAS-002"))
    specification.regenerate()
    specification.write_alias(directive("MC-ALIAS-001"))
    assert "MC-ALIAS-002 was published and cannot be dropped" in refusal(specification)


def test_a_published_requirement_cannot_be_renumbered(specification: Specification) -> None:
    specification.write_alias(directive("MC-ALIAS-001", "One MUST."), directive("MC-ALIAS-002", "Two MUST."))
    specification.regenerate()
    specification.write_alias(directive("MC-ALIAS-001", "Two MUST."), directive("MC-ALIAS-002", "New MUST."))
    message = refusal(specification)
    assert message.startswith("spec/02-alias.rst:4: MC-ALIAS-001 has the text of MC-ALIAS-002")


def test_a_retired_requirement_stays_retired_and_its_text_can_get_a_new_number(specification: Specification) -> None:
    specification.write_alias(directive("MC-ALIAS-001", "One MUST."))
    specification.regenerate()
    retired = directive("MC-ALIAS-001", "One MUST.", status="retired")
    specification.write_alias(retired, directive("MC-ALIAS-002", "One MUST."))
    specification.regenerate()
    for revived in (directive("MC-ALIAS-001", "One MUST."), retired.replace("One", "Another")):
        specification.write_alias(revived, directive("MC-ALIAS-002", "Two MUST."))
        assert "spec/02-alias.rst:4: MC-ALIAS-001 was retired" in refusal(specification)


@pytest.mark.parametrize(
    "lock",
    ["", "{", "[]", "{}", '{"requirements": []}', '{"requirements": {"MC-A-001": {}}}', '{"requirements": {"X": 1}}'],
)
def test_a_damaged_lock_is_refused(specification: Specification, lock: str) -> None:
    (specification.root / "spec/requirements.lock.json").write_text(lock, encoding="utf-8")
    assert "spec/requirements.lock.json:1: this is no lock" in refusal(specification)


def test_the_command_reports_a_malformed_specification(
    specification: Specification, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    specification.write_alias(directive("MC-ALIAS-001", level="may"))
    monkeypatch.setattr(
        __main__, "generators", lambda: {"requirements": lambda: requirements.generate(specification.root)}
    )
    assert __main__.main(["--check"]) == 1
    assert "spec/02-alias.rst:4: MC-ALIAS-001: :level:" in capsys.readouterr().err


def test_the_committed_files_are_those_of_the_chapters() -> None:
    assert next(iter(generate.generators())) == "requirements"
    assert stale_files(requirements.generate()) == []


def test_the_imported_enum_is_that_of_the_lock() -> None:
    lock = json.loads((CHECKOUT / "spec/requirements.lock.json").read_text(encoding="utf-8"))["requirements"]
    assert list(lock) == [requirement.value for requirement in Req]
    for requirement in Req:
        assert requirement.name == requirement.value.replace("-", "_")
        assert lock[requirement]["text_hash"] == requirement.entry.text_hash
        assert lock[requirement]["status"] == requirement.entry.status
        keyword = requirement.level.value
        assert requirement.entry.status is not Status.FINAL or f"{keyword} " in f"{requirement.entry.sentence} "
