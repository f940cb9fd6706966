"""The Sphinx extension of the documentation site: requirements in the text, and the pages generated from them.

``docs/conf.py`` names it. Text marks a requirement with the directive ``req`` (see ``spec/``); the extension draws it,
makes every ``MC-AREA-NNN`` in any page a link, and writes a page for each requirement and the matrices before the
build reads its sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mutcache_tools.site import links, pages
from mutcache_tools.site.directive import RequirementDirective
from mutcache_tools.site.domain import RequirementDomain

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register everything with Sphinx."""
    app.add_domain(RequirementDomain)
    app.add_directive("req", RequirementDirective, override=True)
    app.add_transform(links.LinkRequirements)
    app.connect("builder-inited", pages.write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
