"""The models of the corpus: what is wrong with them by the reference's checker, and right by the oracle."""

from __future__ import annotations

from typing import Final

import pytest

from mutcache import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.proto import parse
from mutcache.requirements import Profile, Req
from mutcache_conformance.case import LOAD, Case, Load, Run
from mutcache_conformance.cases import generate

#: Negative cases whose model onnx's own checker rejects as well, for the same fault.
ALSO_BROKEN_ONNX: Final = {
    "access-002/sparse-initializer",
    "access-005/scan",
    "alias-001/absent",
    "alias-007/nodes",
    "alias-007/own-result",
    "alias-010/sparse-initializer",
}
CASES: Final = {case.id: case for case in generate()}


def faulty_model(case: Case) -> str:
    """The name of the model that a checker may refuse, or ""."""
    loads = {step.session: step.model for step in case.script if isinstance(step, Load)}
    for step in case.script:
        # A refusal of a Bind is about storage.
        if step.expect.is_rejection and step.expect.rejected_in & LOAD and isinstance(step, Load | Run):
            return loads[step.session]
    return ""


def errors(case: Case, name: str) -> list[Diagnostic]:
    return [finding for finding in diagnose(parse(case.models[name])) if finding.is_error]


FAULTY: Final = [case for case in CASES.values() if faulty_model(case)]


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.id)
def test_a_faulty_model_breaks_what_the_case_declares(case: Case) -> None:
    name = faulty_model(case)
    found = {finding.requirement for finding in errors(case, name)}
    [refused] = [step for step in case.script if step.expect.is_rejection]
    if isinstance(refused, Load):
        assert case.requirements[0] in found
    assert found <= {*case.requirements, *([None] if case.id in ALSO_BROKEN_ONNX else [])}


def test_all_other_models_are_valid() -> None:
    judged: dict[bytes, str] = {}
    for case in CASES.values():
        for name, data in case.models.items():
            if name != faulty_model(case) and judged.setdefault(data, case.id) == case.id:
                assert errors(case, name) == [], f"{case.id}: {name}"


def test_control_flow_has_cases_enough() -> None:
    """Every FLOW requirement that a model can break is broken in several ways, next to models that are right."""
    flow = [case for case in CASES.values() if case.profile is Profile.FLOW]
    for requirement in Req:
        if requirement.startswith("MC-FLOW-") and requirement is not Req.MC_FLOW_008:
            about = [case for case in flow if case.requirements[0] is requirement]
            assert sum(case.is_negative for case in about) >= 3, requirement
            assert sum(not case.is_negative for case in about) >= 2, requirement
