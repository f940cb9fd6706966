"""Requirements as objects that Sphinx knows: other pages and projects can refer to them, and the search finds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.domains import Domain, ObjType
from sphinx.roles import XRefRole
from sphinx.util.nodes import make_refnode

if TYPE_CHECKING:
    from sphinx.addnodes import pending_xref
    from sphinx.builders import Builder
    from sphinx.environment import BuildEnvironment

#: Folder of the pages of single requirements, relative to the root of the sources.
PAGES = "requirements"


class RequirementDomain(Domain):
    """The domain ``mc``: its one kind of object is the requirement, its one role ``:mc:req:`MC-ALIAS-007```."""

    name = "mc"
    label = "Requirements"
    object_types: ClassVar = {"req": ObjType("requirement", "req")}
    roles: ClassVar = {"req": XRefRole()}
    initial_data: ClassVar[dict[str, Any]] = {"definitions": {}}
    data_version = 1

    @property
    def definitions(self) -> dict[str, str]:
        """Where each requirement is written: its ID to the name of the document."""
        definitions: dict[str, str] = self.data["definitions"]
        return definitions

    def note(self, identifier: str, document: str) -> None:
        """Remember that ``document`` defines the requirement."""
        self.definitions[identifier] = document

    def clear_doc(self, docname: str) -> None:
        """Forget what a document that is read again has defined."""
        for identifier in [key for key, document in self.definitions.items() if document == docname]:
            del self.definitions[identifier]

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Take over what a parallel reader found."""
        read = frozenset(docnames)
        self.definitions.update({key: doc for key, doc in otherdata["definitions"].items() if doc in read})

    def get_objects(self) -> Iterable[tuple[str, str, str, str, str, int]]:
        """Every requirement, for the search and the inventory."""
        for identifier, document in self.definitions.items():
            yield identifier, identifier, "req", document, identifier, 1

    def resolve_xref(
        self,
        env: BuildEnvironment,  # noqa: ARG002 - the signature is Sphinx's
        fromdocname: str,
        builder: Builder,
        typ: str,  # noqa: ARG002 - the signature is Sphinx's
        target: str,
        node: pending_xref,  # noqa: ARG002 - the signature is Sphinx's
        contnode: nodes.Element,
    ) -> nodes.reference | None:
        """The place where the requirement is written."""
        document = self.definitions.get(target)
        if document is None:
            return None
        return make_refnode(builder, fromdocname, document, target, contnode, target)

    def resolve_any_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        target: str,
        node: pending_xref,
        contnode: nodes.Element,
    ) -> list[tuple[str, nodes.reference]]:
        """The requirement for the role ``any``."""
        found = self.resolve_xref(env, fromdocname, builder, "req", target, node, contnode)
        return [] if found is None else [("mc:req", found)]
