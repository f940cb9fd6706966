"""What a command prints: text for people, or one JSON document for programs."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from mutcache.diagnostics import Diagnostic


class Format(enum.StrEnum):
    """The two forms of output."""

    TEXT = "text"
    JSON = "json"


class UsageError(Exception):
    """The command line asks for something that makes no sense; exit code 2."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Output:
    """Prints the result of one command in the chosen form.

    Text is never wrapped or parsed as markup: a requirement's ID stays searchable, brackets in a name stay brackets.
    """

    def __init__(self, form: Format) -> None:
        self.form = form
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """Standard output as rich sees it: with styles on a terminal, plain otherwise."""
        if self._console is None:
            from rich.console import Console

            class PlainConsole(Console):
                def on_broken_pipe(self) -> None:
                    raise BrokenPipeError  # the command's own business: rich would exit here

            self._console = PlainConsole(
                # NO_COLOR takes colors from rich, and would leave it other styles.
                color_system=None if os.environ.get("NO_COLOR") else "auto",
                soft_wrap=True,
                markup=False,
                highlight=False,
                emoji=False,
            )
            if not self._console.is_terminal:
                self._console.width = 10_000
        return self._console

    def show(self, document: Mapping[str, object], text: Callable[[], None]) -> None:
        """Print ``document`` as JSON, or call ``text``, which prints the same for people."""
        if self.form is Format.JSON:
            json.dump(document, sys.stdout, indent=2)
            sys.stdout.write("\n")
        else:
            text()

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of text; a part is a string, or a string with its style."""
        from rich.text import Text

        self.console.print(Text.assemble(*parts), soft_wrap=True)

    def render(self, renderable: RenderableType) -> None:
        """Print what rich lays out: as wide as the terminal, and unfolded into a file or pipe."""
        self.console.print(renderable, soft_wrap=False)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print columns, as wide as they need to be."""
        lines = [tuple(header), *(tuple(row) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for number, cells in enumerate(lines):
            text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            self.line((text, "bold") if number == 0 else text)

    def error(self, message: str, *, requirement: str | None = None, hint: str = "") -> None:
        """Print why the command failed: on standard error, or as the JSON document."""
        if self.form is Format.JSON:
            failure = {"requirement": requirement, "message": message, "hint": hint or None}
            self.show({"error": failure}, lambda: None)
            return
        label = f"{requirement}: " if requirement else ""
        print(f"mutcache: error: {label}{message}", file=sys.stderr)
        if hint:
            print(f"  hint: {hint}", file=sys.stderr)

    def diagnostics(self, model: str, diagnostics: Sequence[Diagnostic]) -> None:
        """Print all findings about a model, errors first."""
        document = {"model": model, "diagnostics": [diagnostic.to_json() for diagnostic in diagnostics]}
        self.show(document, lambda: self._diagnostics_text(model, diagnostics))

    def _diagnostics_text(self, model: str, diagnostics: Sequence[Diagnostic]) -> None:
        from mutcache.diagnostics import Severity

        styles = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
        order = list(Severity)
        for diagnostic in sorted(diagnostics, key=lambda each: order.index(each.severity)):
            label = diagnostic.requirement.value if diagnostic.requirement else "onnx"
            self.line(
                (diagnostic.severity.value, styles[diagnostic.severity]),
                " ",
                (label, "bold"),
                f": {diagnostic.message}",
            )
            self.line((f"  at {diagnostic.where}", "dim"))
            if diagnostic.hint:
                self.line("  hint: ", diagnostic.hint)
        counts = [(severity, sum(each.severity is severity for each in diagnostics)) for severity in order]
        found = ", ".join(f"{count} {severity.value}{'s' * (count != 1)}" for severity, count in counts if count)
        self.line(f"{model}: ", (found, "bold") if found else ("no findings", "green"))
