"""Findings of the checker, and how they read."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mutcache.requirements import Req


class Severity(enum.StrEnum):
    """How much a finding weighs: only an error makes a model invalid."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a finding is.

    Attributes:
        graph: path of the graph, ``main`` or for example ``main/if_1.then_branch``; a function is ``domain::name``.
        node: the node as ``CacheUpdate 'update' (#3)``, or "".
        value: the value's name, or "".
    """

    graph: str = "main"
    node: str = ""
    value: str = ""

    def __str__(self) -> str:
        parts = [self.graph]
        if self.node:
            parts.append(f"node {self.node}")
        if self.value:
            parts.append(f"value {self.value!r}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. ``requirement`` is None for a finding of the base checker."""

    requirement: Req | None
    message: str
    where: Location = field(default_factory=Location)
    hint: str = ""
    severity: Severity = Severity.ERROR

    @property
    def is_error(self) -> bool:
        """Whether the finding makes the model invalid."""
        return self.severity is Severity.ERROR

    def to_json(self) -> dict[str, str | None]:
        """The finding as ``mutcache check --format json`` prints it."""
        return {
            "requirement": self.requirement.value if self.requirement else None,
            "level": self.requirement.level.value if self.requirement else None,
            "severity": self.severity.value,
            "graph": self.where.graph,
            "node": self.where.node or None,
            "value": self.where.value or None,
            "message": self.message,
            "hint": self.hint or None,
        }

    def __str__(self) -> str:
        label = self.requirement.value if self.requirement else "onnx"
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.severity.value} {label}: {self.message}\n  at {self.where}{hint}"
