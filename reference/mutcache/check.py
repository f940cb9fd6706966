"""The checker: every rule, then stock onnx on the projection; all findings, then at most one error."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mutcache.alias import alias_classes
from mutcache.decode import decode
from mutcache.diagnostics import Diagnostic, Location, Severity
from mutcache.errors import CheckError
from mutcache.external import resolve_external_data
from mutcache.model import DOMAIN, DOMAIN_VERSION, OPERATORS, Model
from mutcache.proto import load
from mutcache.proto.onnx_ml import ModelProto
from mutcache.rules import RULES, Context
from mutcache.shapes import ShapesContext

#: What can be checked: a parsed or decoded model, or the path of a file.
Checkable = ModelProto | Model | str | os.PathLike[str]


def check_model(model: Checkable, *, base: bool = True, explain: bool = False) -> list[Diagnostic]:
    """Check a model against the specification, and its base against stock onnx.

    Args:
        model: the model, which is not modified, or a path; external data is looked for beside a file, and not at all
            for a model in memory.
        base: whether stock onnx takes part: without it the base model is taken to be sound, and types are known
            only where they are declared.
        explain: also say, as information, which bounds of updates are left to run time and why.

    Returns:
        The findings that are no errors.

    Raises:
        CheckError: with all findings, if one is an error.
        DecodeError: the file cannot be read, or the model has what protobuf cannot store.
    """
    findings = diagnose(model, base=base, explain=explain)
    if any(finding.is_error for finding in findings):
        raise CheckError(findings)
    return findings


def diagnose(model: Checkable, *, base: bool = True, explain: bool = False) -> list[Diagnostic]:
    """All findings of :func:`check_model`, rules first, the base check last.

    Raises:
        DecodeError: the file cannot be read, or the model has what protobuf cannot store.
    """
    decoded = _read(model)
    aliases = alias_classes(decoded)
    context = Context(decoded, aliases, ShapesContext(decoded, aliases, base=base), explain)
    findings: list[Diagnostic] = []
    for rule in RULES.values():
        findings.extend(rule(context))
    findings.extend(_unknown_operators(context))
    if base:
        findings.extend(_base_findings(context, findings))
    return findings


def _read(model: Checkable) -> Model:
    if isinstance(model, Model):
        return model
    if not isinstance(model, str | os.PathLike):
        return decode(model)
    decoded = decode(load(model, external_data=False))
    resolve_external_data(decoded, Path(model).parent)
    return decoded


def _unknown_operators(context: Context) -> Iterator[Diagnostic]:
    """Nodes of this domain that it has no operator for: stock onnx takes what it has no schema for as it is."""
    for graph in context.graphs:
        for index, proto in enumerate(graph.proto.node):
            if proto.domain != DOMAIN or proto.op_type in OPERATORS:
                continue
            if (proto.domain, proto.op_type, proto.overload) not in context.model.functions:
                near = difflib.get_close_matches(proto.op_type, OPERATORS, 1)
                yield Diagnostic(
                    None,
                    f"{DOMAIN} version {DOMAIN_VERSION} has no operator {proto.op_type!r}",
                    Location(graph.path, graph.nodes[index].label),
                    hint=f"did you mean {near[0]}?" if near else f"it has {', '.join(OPERATORS)}",
                )


def _base_findings(context: Context, findings: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    shapes = context.shapes
    message = shapes.structure_error or shapes.inference_error
    if shapes.inference_error and any(finding.is_error for finding in findings):
        # What the rules have rejected, stock inference need not reject again: it judges the rest of the model.
        message = shapes.remaining_error(
            {(finding.where.graph, finding.where.node) for finding in findings if finding.is_error}
        )
    if message:
        yield Diagnostic(None, message, hint="stock onnx rejects the model, its mutable caches apart")
    if shapes.unjudged:
        yield Diagnostic(
            None,
            f"types are not inferred: {shapes.unjudged}",
            hint="inline functions where many calls do the same",
            severity=Severity.WARNING,
        )
