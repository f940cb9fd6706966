"""What the tests of rules in bodies share: findings of a model, and small bodies of branches and loops."""

from __future__ import annotations

from flow_models import (
    FLOAT,
    body,
    loop,
    negated,
    passed,
    updated,
    value,
)

from mutcache.check import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import tensor

U = value("u", alias_of="c")
ALL = tensor("all", FLOAT, [None, 8, 4])


def errors(made: ModelProto) -> list[Diagnostic]:
    return [finding for finding in diagnose(made) if finding.is_error]


def requirements(made: ModelProto) -> list[Req | None]:
    return [finding.requirement for finding in errors(made)]


def only(made: ModelProto) -> Diagnostic:
    (finding,) = errors(made)
    return finding


def writes(source: str = "c", output: str = "t", alias_of: str = "c") -> GraphProto:
    return body([updated(source, output)], value(output, alias_of=alias_of))


def keeps(source: str = "c", output: str = "t", alias_of: str = "c") -> GraphProto:
    return body([passed(source, output)], value(output, alias_of=alias_of))


def makes(output: str = "t") -> GraphProto:
    return body([negated("x", output)], value(output))


C_IN = value("c_in", mutable=True)
T = value("t", alias_of="c_in")


def looped(*nodes: NodeProto, results: tuple[ValueInfoProto, ...] = (T,), formals: tuple[ValueInfoProto, ...] = (C_IN,),
           initial: tuple[str, ...] = ("c",), outputs: tuple[str, ...] = ("u",)) -> NodeProto:  # fmt: skip
    return loop(initial, outputs, nodes, *results, formals=formals)
