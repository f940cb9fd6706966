"""The page on the wire protocol is complete, current and right."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import roles

from mutcache_conformance.schema import load, validate
from mutcache_tools.generate import ROOT, SourceError, protocol_doc, stale_files

PAGE = (ROOT / protocol_doc.PAGE).read_text(encoding="utf-8")
FILES, STORAGE, SHOWN = (
    re.sub(r"\s+", " ", block).strip() for block in re.findall(r"code-block:: json\n\n((?:   .*\n)+)", PAGE)
)
TABLE = "".join(re.findall(r"code-block:: text\n\n((?:   .*\n)+)", PAGE)[0].split())
CONVERSATION = re.findall(r"^   ([<>]) (\{.*\})$", PAGE, flags=re.MULTILINE)


def test_the_committed_page_is_current() -> None:
    assert stale_files(protocol_doc.generate()) == []


@pytest.mark.parametrize("name", ["protocol.rst", "first-adapter.rst"])
def test_the_pages_are_sound(name: str) -> None:
    roles.register_generic_role("doc", nodes.emphasis)  # the site makes a link of it, and checks it
    complaints = io.StringIO()
    settings = {"warning_stream": complaints, "report_level": 2, "halt_level": 5}
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    publish_doctree(page, settings_overrides=settings)
    assert complaints.getvalue() == ""
    for target in re.findall(r"<([^>:`]+\.\w+)>`_", page):
        assert (ROOT / "docs" / target).is_file(), target


def test_every_definition_of_a_message_has_its_section() -> None:
    definitions = load("protocol")["$defs"]
    messages = [name for kind in ("request", "answer") for name in definitions if name.startswith(f"{kind}-")]
    generated = PAGE.partition(protocol_doc.BEGIN)[2]
    parts = ("file", "storage", "table", "page", "output", "output-table", "output-page", "product")
    assert generated.count("\n~~~") == len(messages) + len(parts)
    assert all(f"\n{part}\n~~~" in generated for part in parts)
    for name in messages:
        for field, form in definitions[name]["properties"].items():
            assert f"``{field}``" in generated
            assert form.get("description", "") in generated


def test_the_page_tables_follow_the_schema() -> None:
    table, shown = json.loads(TABLE.replace("STORAGE", STORAGE)), json.loads(SHOWN)
    bind = {"id": 1, "op": "bind", "session": "s", "binding": "b", "files": [], "mutable": {}, "outputs": {}}
    validate({**bind, "tables": {"cache": table}}, "protocol", "request-bind")
    validate({"id": 2, "answer": "done", "outputs": {"cache": shown}}, "protocol", "answer-run-done")
    validate({"id": 3, "answer": "ok", "tables": {"cache": shown}}, "protocol", "answer-inspect-ok")


def test_the_conversation_follows_the_schema() -> None:
    open_requests: dict[int, str] = {}
    for direction, line in CONVERSATION:
        message = json.loads(line.replace("STORAGE", STORAGE).replace("FILES", f"[{FILES}]"))
        validate(message, "protocol", {">": "request", "<": "answer"}[direction])
        if direction == ">":
            open_requests[message["id"]] = message["op"]
        elif message["answer"] != "started":
            del open_requests[message["id"]]
    assert open_requests == {}
    assert len(CONVERSATION) > 15


def test_a_page_without_a_place_for_the_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / protocol_doc.PAGE).parent.mkdir()
    (tmp_path / protocol_doc.PAGE).write_text("nothing here\n")
    monkeypatch.setattr(protocol_doc, "ROOT", tmp_path)
    with pytest.raises(SourceError, match="must have the lines"):
        protocol_doc.generate()
