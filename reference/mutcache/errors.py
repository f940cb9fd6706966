"""One exception family per phase in which a violation is caught.

Errors are matched by requirement, never by their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from mutcache.diagnostics import Diagnostic
from mutcache.requirements import Phase, Req


class MutcacheError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        requirement: the requirement that was violated, or None (a usage error, an unreadable file).
        values: the compared values by name, for programs (``{"position": 6, "length": 4, "capacity": 8}``).
        hint: what to do about it, or "".
        phase: the phase in which the family of errors is raised.
    """

    phase: ClassVar[Phase]

    def __init__(self, message: str, *, requirement: Req | None = None, hint: str = "", **values: object) -> None:
        self.message = message
        self.requirement = requirement
        self.hint = hint
        self.values: Mapping[str, object] = values
        prefix = f"{requirement.value}: " if requirement is not None else ""
        super().__init__(f"{prefix}{message}" + (f" (hint: {hint})" if hint else ""))


class DecodeError(MutcacheError):
    """The bytes are no model: not a protobuf, truncated, nested too deeply, external data missing."""

    phase = Phase.DECODE


class CheckError(MutcacheError):
    """The model violates the specification; ``diagnostics`` has every finding, not only the first.

    ``requirement`` is that of the first finding of severity error.
    """

    phase = Phase.CHECK

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        errors = [diagnostic for diagnostic in self.diagnostics if diagnostic.is_error]
        super().__init__(
            "\n".join(str(diagnostic) for diagnostic in errors),
            requirement=errors[0].requirement if errors else None,
        )
        # The rendered diagnostics already carry their requirement.
        self.args = (self.message,)


class PlanError(MutcacheError):
    """The model is sound, but no plan can be made of it (no in-place kernel, a dimension without a value)."""

    phase = Phase.PLAN


class BindError(MutcacheError):
    """A binding is refused; no lease was taken and nothing was written."""

    phase = Phase.BIND


class RunError(MutcacheError):
    """A run is refused or failed; the failing update wrote nothing and the binding stays usable."""

    phase = Phase.RUN
