"""Every requirement's ID in running text is a link to where the requirement is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from mutcache_tools.site.domain import RequirementDomain

_ID: Final = re.compile(r"MC-[A-Z]+-\d{3}")
#: Inside these, text stays as it is.
_OPAQUE: Final = (nodes.reference, nodes.literal_block, nodes.raw, nodes.title, nodes.comment, nodes.math)


class LinkRequirements(SphinxPostTransform):
    """Turns IDs in text, inline literals included, into references. An ID that is none is left alone."""

    default_priority = 900

    def run(self, **_: Any) -> None:
        """Transform one document."""
        domain = cast("RequirementDomain", self.env.get_domain("mc"))
        for text in list(self.document.findall(nodes.Text)):
            if _ID.search(text) and not self._is_opaque(text):
                parent = text.parent
                parent.replace(text, list(self._parts(text, domain)))

    def _parts(self, text: nodes.Text, domain: RequirementDomain) -> Iterator[nodes.Node]:
        end = 0
        for match in _ID.finditer(text):
            document = domain.definitions.get(match[0])
            if document is None:
                continue
            if match.start() > end:
                yield nodes.Text(text[end : match.start()])
            yield make_refnode(
                self.app.builder, self.env.docname, document, match[0], nodes.Text(match[0]), f"requirement {match[0]}"
            )
            end = match.end()
        if end < len(text):
            yield nodes.Text(text[end:])

    @staticmethod
    def _is_opaque(text: nodes.Text) -> bool:
        node: nodes.Node | None = text.parent
        while node is not None:
            if isinstance(node, _OPAQUE) or (isinstance(node, nodes.Element) and "requirement-head" in node["classes"]):
                return True
            node = node.parent
        return False
