"""The directive ``req`` as the site draws it: a box with the ID, what kind of requirement it is, and its sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from mutcache_tools.site.domain import PAGES

if TYPE_CHECKING:
    from mutcache_tools.site.domain import RequirementDomain

#: The options of a requirement in the order in which the box shows them.
OPTIONS = ("level", "subject", "phases", "profile", "status")


class RequirementDirective(SphinxDirective):
    """One requirement; that its options are right, the generator of the enum has judged."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = dict.fromkeys(OPTIONS, directives.unchanged_required)

    def run(self) -> list[nodes.Node]:
        """The box."""
        identifier = self.arguments[0]
        domain = cast("RequirementDomain", self.env.get_domain("mc"))
        domain.note(identifier, self.env.docname)
        level = self.options.get("level", "MUST").lower()
        box = nodes.container(classes=["requirement", f"requirement-{level}"], ids=[identifier])
        head = nodes.paragraph(classes=["requirement-head"])
        head += self._link(identifier)
        for option in OPTIONS:
            if option in self.options:
                head += nodes.Text(" ")
                value = self.options[option]
                head += nodes.inline("", value, classes=["tag", f"tag-{option}", f"tag-{value.split(',')[0].lower()}"])
        box += head
        box += self.parse_content_to_nodes()
        self.set_source_info(box)
        self.state.document.note_explicit_target(box)
        return [box]

    def _link(self, identifier: str) -> nodes.Node:
        """The ID, which leads to the page of the requirement where the site has one; the printed text has none."""
        page, label = f"{PAGES}/{identifier}", nodes.strong("", identifier)
        if page not in self.env.found_docs:
            return label
        return addnodes.pending_xref(
            "", label, refdomain="std", reftype="doc", reftarget=f"/{page}", refexplicit=True, refwarn=True
        )
