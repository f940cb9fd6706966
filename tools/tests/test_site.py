"""The Sphinx extension on a site of three pages, and the checker of built sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutcache.requirements import Req
from mutcache_tools.site import check, pages, rst

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

    tmp_path = tmp_path_factory.mktemp("site")
    source = tmp_path / "source"
    source.mkdir()
    for name, text in (("conf.py", CONF), ("chapter.rst", CHAPTER), ("index.rst", INDEX)):
        (source / name).write_text(text, encoding="utf-8")
    built = tmp_path / "built"
    with pytest.MonkeyPatch.context() as patch:
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
