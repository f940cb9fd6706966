"""The Sphinx extension on a site of three pages, and the checker of built sites."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mutcache.requirements import Req, Status
from mutcache_conformance.cases import generate
from mutcache_tools import cli, spec_history
from mutcache_tools.commands import commands
from mutcache_tools.requirement_story import Story, requirement_story
from mutcache_tools.site import check, command_pages, matrices, pages, requirement_page, rst
from mutcache_tools.site.facts import Facts, collect, read_faults, read_landscape

pytest.importorskip("sphinx", reason="the extra docs is not installed")

CONF = 'extensions = ["mutcache_tools.site"]\n'
CHAPTER = """\
Chapter
=======

.. req:: MC-ALIAS-007
   :level: MUST
   :subject: model
   :phases: check
   :profile: dense
   :status: final

   It MUST be *so*, as MC-ALIAS-008 says.

.. req:: MC-ALIAS-008
   :level: SHOULD
   :subject: model
   :phases: check, run
   :profile: dense
   :status: planned

   It SHOULD be.
"""
INDEX = """\
Index
=====

See MC-ALIAS-007, ``MC-ALIAS-008``, :mc:req:`MC-ALIAS-007`, and not MC-ALIAS-999.

.. code-block:: text

   MC-ALIAS-007 in code

.. toctree::

   chapter
"""


@pytest.fixture(scope="module")  # Sphinx cannot be set up twice in a process without warnings
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    tmp_path = tmp_path_factory.mktemp("site")
    source = tmp_path / "source"
    source.mkdir()
    for name, text in (("conf.py", CONF), ("chapter.rst", CHAPTER), ("index.rst", INDEX)):
        (source / name).write_text(text, encoding="utf-8")
    built = tmp_path / "built"
    # What Sphinx changes of docutils, it changes back: other tests read chapters without it.
    with pytest.MonkeyPatch.context() as patch, patch_docutils(str(source)), docutils_namespace():
        patch.setattr(pages, "write", lambda _: None)
        app = Sphinx(
            str(source), str(source), str(built), str(tmp_path / "trees"), "html", status=None, warningiserror=True
        )
        app.build()
    assert app.statuscode == 0
    return built


def test_a_requirement_is_a_box_with_its_tags(site: Path) -> None:
    html = (site / "chapter.html").read_text(encoding="utf-8")
    assert 'id="MC-ALIAS-007"' in html
    assert "requirement-should" in html
    for tag in ("tag-must", "tag-model", "tag-check", "tag-dense", "tag-planned"):
        assert tag in html


def test_an_id_in_text_is_a_link_and_in_code_is_not(site: Path) -> None:
    html = (site / "index.html").read_text(encoding="utf-8")
    assert html.count('href="chapter.html#MC-ALIAS-007"') == 2
    assert html.count('href="chapter.html#MC-ALIAS-008"') == 1
    assert "MC-ALIAS-999" in html
    assert "#MC-ALIAS-999" not in html
    assert 'href="#MC-ALIAS-008"' in (site / "chapter.html").read_text(encoding="utf-8")


def test_the_checker_finds_what_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text(
        '<p id="here"></p><a href="#here"></a><a href="#gone"></a><a href="two.html#there"></a><a href="../out"></a>'
        '<img src="none.png"><a href="https://example.org/#x"></a>',
        encoding="utf-8",
    )
    (tmp_path / "two.html").write_text('<p id="there"></p>', encoding="utf-8")
    found = [line for line in check.problems(tmp_path) if line.startswith("one.html")]
    assert len(found) == 3
    assert [line.split(": ")[1] for line in found] == ["#gone", "../out", "none.png"]


def test_the_checker_misses_requirements_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text('<p id="MC-ALIAS-007"></p>', encoding="utf-8")
    found = list(check.problems(tmp_path))
    assert f"{Req.MC_ALIAS_007}: its target stands in one.html" in found
    assert f"{Req.MC_ALIAS_008}: its target stands in no page" in found


def test_a_table_holds_its_cells() -> None:
    lines = list(rst.table(("a", "b"), [("1", ""), ("2", "x")], widths=(1, 2)))
    assert [line.strip() for line in lines if line.strip()][1:] == [
        ":header-rows: 1",
        ":widths: 1 2",
        "* - a",
        "- b",
        "* - 1",
        "-",
        "* - 2",
        "- x",
    ]


def test_what_is_folded_is_inside() -> None:
    lines = list(rst.folded("two", ["- a", "- b"]))
    assert lines.index("   <details><summary>two</summary>") < lines.index("- a") < lines.index("   </details>")


# What the pages tell


@pytest.fixture(scope="module")
def facts() -> Facts:
    """The facts of this checkout."""
    return collect(pages.ROOT)


@pytest.fixture(scope="module")
def stories() -> dict[Req, Story]:
    """The stories of this checkout."""
    return {requirement: requirement_story(requirement, pages.ROOT) for requirement in Req}


def test_faults_are_read_from_the_table() -> None:
    rows = [
        "| runtime | its fault | requirement | cases failed | status | reason |",
        "|---|---|---|---|---|---|",
        r"| Clamps | Moves a \| b. | MC-DENSE-003 | `dense-003/by-one` `dense-003/last` | fail | step 3 |",
    ]
    (fault,) = read_faults("\n".join(rows))
    assert (fault.runtime, fault.what, fault.requirement) == ("Clamps", "Moves a | b.", Req.MC_DENSE_003)
    assert fault.cases == ("dense-003/by-one", "dense-003/last")
    assert (fault.status, fault.reason) == ("fail", "step 3")


def test_every_committed_fault_is_read() -> None:
    text = (pages.ROOT / "conformance" / "FAULTS.md").read_text(encoding="utf-8")
    found = list(read_faults(text))
    assert len(found) == len(re.findall(r"^\| \w+ \|.*\| MC-[A-Z]+-\d{3} \|", text, re.MULTILINE))
    known = {case.id for case in generate()}
    assert {case for fault in found for case in fault.cases} <= known


def test_scores_of_a_runtime(tmp_path: Path, facts: Facts) -> None:
    first, second, third = (case.id for case in facts.cases[Req.MC_DENSE_003][:3])
    seen = {"requirements": ["MC-PAGED-012"], "status": "fail", "done": "Asked.", "seen": "It ended."}
    document = {
        "title": "A runtime",
        "adapter": {"runtime_version": "1.2"},
        "results": {first: "pass", second: "crash", third: "unsupported", "gone-001/case": "fail"},
        "observations": [seen],
    }
    (tmp_path / "one.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "one.rst").write_text(".. _landscape-one-mc-dense-003:\n", encoding="utf-8")
    scores = read_landscape(tmp_path, facts.cases)
    (score,) = scores[Req.MC_DENSE_003]
    assert (score.title, score.version) == ("A runtime", "1.2")
    assert (score.passed, score.failed, score.unsupported, score.total) == (1, 1, 1, 3)
    assert score.has_causes
    (probed,) = scores[Req.MC_PAGED_012]
    assert (probed.total, probed.probes, probed.has_causes) == (0, (("fail", "Asked. It ended."),), False)
    assert Req.MC_PROTO_005 not in scores


def test_every_final_requirement_is_kept_somewhere(facts: Facts, stories: dict[Req, Story]) -> None:
    """A page names the rule or place that keeps the requirement, or says what does it without bearing its ID."""
    for requirement, story in stories.items():
        if requirement.entry.status is not Status.FINAL or story.places.get("reference"):
            continue
        done_by = facts.done_by(requirement)
        assert done_by, requirement
        assert (pages.ROOT / done_by).exists(), requirement
        assert done_by in requirement_page.reason_without_places(requirement, facts)
        assert story.places.get("tests"), f"{requirement}: no test names it"


def test_every_model_requirement_has_a_rule(stories: dict[Req, Story]) -> None:
    for requirement, story in stories.items():
        if requirement.entry.status is Status.FINAL and requirement.entry.subject.value == "model":
            assert any(place.symbol for place in story.places["reference"]), requirement


def test_a_page_tells_the_whole_story(facts: Facts, stories: dict[Req, Story]) -> None:
    requirement = Req.MC_DENSE_003
    text = requirement_page.page(requirement, stories[requirement], facts, pages.ROOT)
    assert requirement.entry.sentence in text
    assert all(f"``{case.id}``" in text for case in facts.cases[requirement])
    assert all(f"``{fault.runtime}``" in text for fault in facts.faults[requirement])
    assert all(score.title in text for score in facts.runtimes[requirement])
    for section in ("reference", "kernels", "tests"):
        assert all(f"``{place.path}:{place.line}``" in text for place in stories[requirement].places[section])
    assert ":doc:`← MC-DENSE-002 </requirements/MC-DENSE-002>`" in text
    assert ":doc:`MC-DENSE-004 → </requirements/MC-DENSE-004>`" in text


def test_the_matrices_have_every_requirement(facts: Facts, stories: dict[Req, Story]) -> None:
    for text in (matrices.index(), matrices.tests(stories, facts), matrices.coverage(facts)):
        assert set(re.findall(r"/requirements/(MC-[A-Z]+-\d{3})>`", text)) == set(Req)
    assert set(re.findall(r"\* - ``(\w+)``", matrices.faults(facts))) == {
        fault.runtime for group in facts.faults.values() for fault in group
    }


def test_history_has_versions_and_what_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spec").mkdir()
    texts = {"MC-ALIAS-001": "1"}
    monkeypatch.setattr(spec_history, "texts", lambda: texts)
    spec_history.publish("1", tmp_path, date="2026-01-01")
    assert list(requirement_page.history(Req.MC_ALIAS_001, tmp_path)) == ["added in version 1, 2026-01-01"]
    texts["MC-ALIAS-001"] = "2"
    (tmp_path / spec_history.CHANGES).write_text(
        '[[change]]\nrequirement = "MC-ALIAS-001"\nkind = "reworded"\nwhy = "it was *unclear*"\n', encoding="utf-8"
    )
    assert list(requirement_page.history(Req.MC_ALIAS_001, tmp_path)) == [
        "added in version 1, 2026-01-01",
        r"reworded since the last version, not published yet: it was \*unclear\*",
    ]
    assert list(requirement_page.history(Req.MC_ALIAS_002, tmp_path)) == []


def test_the_command_page_has_every_command_and_argument() -> None:
    text = command_pages.command_line()
    subparsers = command_pages._subparsers(cli.parser(commands()))
    assert set(re.findall(r"^mutcache (\w+)$", text, re.MULTILINE)) == set(subparsers)
    for parser in subparsers.values():
        for action in parser._actions:
            if action.dest not in ("help", "format"):
                assert all(f"``{name}" in text for name in action.option_strings)


def test_the_schema_page_has_every_schema_and_member() -> None:
    text = command_pages.schemas(pages.ROOT)
    for folder in command_pages.SCHEMAS:
        for path in (pages.ROOT / folder).glob("*.json"):
            assert f"``{folder}/{path.name}``" in text
            for name in json.loads(path.read_text(encoding="utf-8")).get("properties", {}):
                assert f"``{name}``" in text
