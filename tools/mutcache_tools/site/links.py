"""Every requirement's ID in running text is a link to where the requirement is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

_ID: Final = re.compile(r"MC-[A-Z]+-\d{3}")
#: Inside these, text stays as it is.
_OPAQUE: Final = (
    nodes.reference,
    addnodes.pending_xref,
    nodes.literal_block,
    nodes.raw,
    nodes.title,
    nodes.comment,
    nodes.math,
)


class LinkRequirements(SphinxTransform):
    """Turns IDs in text, inline literals included, into references. An ID that is none stays text."""

    default_priority = 700

    def apply(self, **_: Any) -> None:
        """Transform one document."""
        for text in list(self.document.findall(nodes.Text)):
            if _ID.search(text) and not _is_opaque(text):
                text.parent.replace(text, list(_parts(text)))


def _parts(text: nodes.Text) -> Iterator[nodes.Node]:
    end = 0
    for match in _ID.finditer(text):
        if match.start() > end:
            yield nodes.Text(text[end : match.start()])
        yield addnodes.pending_xref(
            "",
            nodes.inline("", match[0]),
            refdomain="mc",
            reftype="req",
            reftarget=match[0],
            refexplicit=True,
            refwarn=False,
        )
        end = match.end()
    if end < len(text):
        yield nodes.Text(text[end:])


def _is_opaque(text: nodes.Text) -> bool:
    node: nodes.Node | None = text.parent
    while node is not None:
        if isinstance(node, _OPAQUE) or (isinstance(node, nodes.Element) and "requirement-head" in node["classes"]):
            return True
        node = node.parent
    return False
