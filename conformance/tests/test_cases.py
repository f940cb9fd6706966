"""The corpus: complete, consistent with itself and with the oracle, and the same every time."""

from __future__ import annotations

import difflib
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from onnx import helper

from mutcache.proto import parse
from mutcache.requirements import Phase, Profile, Req, Status, Subject
from mutcache_conformance import case_json
from mutcache_conformance.case import LOAD, RUN, Bind, Case, Finish, Load, PageTable, Run, Start, Storage, Write
from mutcache_conformance.cases import AREAS, dense, generate
from mutcache_conformance.memory import SPARSE_BYTES
from mutcache_conformance.oracle import Contents, OracleRefusal, OracleResult, run_model
from mutcache_conformance.oracle_pages import PageImage, Pages
from mutcache_conformance.overlay import Overlay

Array = np.ndarray[Any, np.dtype[Any]]
OTHER_NONCE = 20_260_801
CASES = {case.id: case for case in generate()}
NEGATIVE = [case for case in CASES.values() if case.is_negative]


def test_the_first_case_of_its_area_is_the_specifications_example() -> None:
    first = next(case for case in CASES.values() if case.id.startswith("dense-") and case.profile is Profile.DENSE)
    assert first.id == "dense-001/seed-example"
    [model] = (parse(data) for data in first.models.values())
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == [2, "batch", "heads", "max_length", "head_size"]


@pytest.mark.parametrize("nonce", [0, OTHER_NONCE])
def test_ids_name_their_requirement(nonce: int) -> None:
    cases = generate(nonce)
    assert len({case.id for case in cases}) == len(cases)
    for case in cases:
        area, _, number = case.id.partition("/")[0].partition("-")
        assert case.requirements[0] == f"MC-{area.upper()}-{number}"
        assert area in AREAS
        # A case needs what its requirement's profile has, and it may need control flow or pages on top of that.
        assert case.profile in (case.requirements[0].entry.profile, Profile.FLOW, Profile.PAGED, Profile.HETEROGENEOUS)


def test_every_final_requirement_has_cases() -> None:
    shown = {requirement for case in CASES.values() for requirement in case.requirements}
    refused = {case.requirements[0] for case in NEGATIVE}
    areas = tuple(f"MC-{area.upper()}-" for area in AREAS)
    profiles = {case.profile for case in CASES.values()}
    for requirement in Req:
        entry = requirement.entry
        if not requirement.startswith(areas) or entry.profile not in profiles:
            continue
        if entry.status is not Status.FINAL or entry.subject is Subject.TOOL:
            continue
        assert requirement in shown, f"no case shows {requirement}"
        if entry.subject is Subject.MODEL and entry.level == "MUST":
            assert requirement in refused, f"no case has a model that breaks {requirement}"


def test_cases_are_about_final_requirements() -> None:
    for case in CASES.values():
        assert case.requirements[0].entry.status is Status.FINAL, case.id
        assert case.requirements[0].entry.subject is not Subject.TOOL, case.id


def test_refusals_are_wanted_only_where_the_requirement_has_them() -> None:
    for case in NEGATIVE:
        phases = {phase for requirement in case.requirements for phase in requirement.entry.phases}
        allowed = phases | (LOAD if phases & LOAD else set())
        for step in case.script:
            assert step.expect.rejected_in <= allowed, case.id


def test_optional_types_are_not_required() -> None:
    for case in CASES.values():
        assert case.required == (not case.needs), case.id


# Twins


def dump(case: Case) -> list[str]:
    """A case as lines: models as text, contents as digests."""
    form = case_json.to_json(case)
    lines = [line for data in case.models.values() for line in text_format.MessageToString(parse(data)).splitlines()]
    lines += [str(storage) for storage in form["storages"]]
    for table in form.get("tables", []):
        lines += [str({**table, "pages": len(table["pages"])}), *map(str, table["pages"])]
    return lines + [str({**step, "rejected_in": None}) for step in form["script"]]


def distance(one: Case, other: Case) -> int:
    """Lines that stand in only one of two cases; a changed line counts once."""
    matcher = difflib.SequenceMatcher(a=dump(one), b=dump(other), autojunk=False)
    changes = (block for block in matcher.get_opcodes() if block[0] != "equal")
    return sum(max(end_a - start_a, end_b - start_b) for _, start_a, end_a, start_b, end_b in changes)


def in_common(case: Case, twin: Case) -> Case:
    """The part of a case that its twin has, too: without the recovery by a model that the twin does not need."""
    models = {name: model for name, model in case.models.items() if name in twin.models}
    script = tuple(step for step in case.script if not isinstance(step, Load) or step.model in models)
    return replace(case, models=models, script=script)


def test_every_refusal_has_a_valid_twin() -> None:
    for case in NEGATIVE:
        twin = CASES[case.twin]
        assert not twin.is_negative
        assert twin.required or not case.required
        assert twin.needs <= case.needs
    for case in CASES.values():
        assert bool(case.twin) == case.is_negative, case.id


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: case.id)
def test_twins_differ_in_little(case: Case) -> None:
    # The text of a value with its type takes 16 lines or so: one may be added, or exchanged for a node that makes it.
    twin = CASES[case.twin]
    assert 0 < distance(in_common(case, twin), twin) <= 40


def test_every_refusal_is_followed_by_what_still_works() -> None:
    for case in NEGATIVE:
        refused = [number for number, step in enumerate(case.script) if step.expect.is_rejection]
        assert len(refused) == 1, case.id
        assert any(isinstance(step, Run) for step in case.script[refused[0] + 1 :]), case.id


# The oracle


class Play:
    """Plays a script on the oracle: what a runtime without any fault does to memory."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.storages = {storage.name: storage for storage in case.storages}
        self.memory: dict[str, bytearray] = {}
        for storage in sorted(case.storages, key=lambda storage: bool(storage.within)):
            if storage.content is not None and not self.is_sparse(storage):
                self.elements(storage)[...] = np.frombuffer(storage.content, self.dtype(storage)).reshape(storage.shape)
        self.tables = {table.name: self.pages(table) for table in case.tables}
        self.bound: dict[str, Mapping[str, str]] = {}
        self.loaded: dict[str, Load] = {}
        self.started: dict[str, Start] = {}

    def dtype(self, storage: Storage) -> np.dtype[Any]:
        return helper.tensor_dtype_to_np_dtype(storage.dtype)

    def is_sparse(self, storage: Storage) -> bool:
        """Whether it lies in memory that is too large to hold."""
        root = self.storages[storage.within] if storage.within else storage
        return math.prod(root.shape) * self.dtype(root).itemsize > SPARSE_BYTES

    def pages(self, table: PageTable) -> Pages:
        """A table as the caller made it."""
        images = [
            PageImage(page.quantized_type, page.dims, self.payload(self.storages[page.storage]), page.key)
            for page in table.pages
        ]
        return Pages(table.container, tuple(images), table.budget)

    def payload(self, storage: Storage) -> bytes:
        """The bytes of a page."""
        return bytes(math.prod(storage.shape)) if storage.content is None else storage.content

    def contents(self, name: str) -> Contents:
        """What the oracle gets."""
        if name in self.tables:
            return self.tables[name]
        storage = self.storages[name]
        sparse = self.is_sparse(storage)
        return Overlay(self.dtype(storage), storage.shape) if sparse else self.elements(storage)

    def elements(self, storage: Storage) -> Array:
        offset = 1 << 14  # room for storages that begin before the one they lie in
        root = storage
        while root.within:
            offset += root.offset
            root = self.storages[root.within]
        memory = self.memory.setdefault(root.name, bytearray(1 << 16))
        return np.ndarray(storage.shape, self.dtype(storage), memory, offset, storage.strides)

    def results(self) -> Iterator[tuple[Run, OracleResult | OracleRefusal]]:
        """What the oracle says of each run that a runtime gets as far as running."""
        for step in self.case.script:
            if isinstance(step, Load):
                self.loaded[step.session] = step
            elif isinstance(step, Bind) and not step.expect.is_rejection:
                self.bound[step.binding] = step.mutable
            elif isinstance(step, Write):
                self.elements(self.storages[step.storage])[...] = self.elements(self.storages[step.source])
            elif isinstance(step, Start):
                self.started[step.run] = step
            elif isinstance(step, Finish):  # runs in flight are as good as runs one after the other
                started = self.started[step.run]
                run = Run(started.session, started.feeds, started.binding, step.expect)
                yield run, self.run(run)
            elif isinstance(step, Run) and Phase.BIND not in step.expect.rejected_in:
                yield step, self.run(step)

    def run(self, step: Run) -> OracleResult | OracleRefusal:
        load = self.loaded[step.session]
        mutable = self.bound.get(step.binding, {})
        named = {**load.initializers, **step.feeds, **mutable}
        places = {value: self.contents(storage) for value, storage in named.items()}
        try:
            result = run_model(self.case.models[load.model], places)
        except OracleRefusal as refusal:
            return refusal
        if not step.expect.is_rejection:
            for root in mutable:
                place = places[root]
                if isinstance(place, np.ndarray):
                    place[...] = result.classes[root][-1]
                elif isinstance(place, Pages):
                    self.tables[mutable[root]] = result.classes[root][-1]
        return result


@pytest.mark.parametrize("nonce", [0, OTHER_NONCE])
def test_the_oracle_accepts_what_must_succeed(nonce: int) -> None:
    for case in generate(nonce):
        for step, result in Play(case).results():
            if not step.expect.is_rejection:
                assert isinstance(result, OracleResult), f"{case.id}: {result}"
                assert result.classes or not step.binding
                for history in result.classes.values():
                    assert len({None if isinstance(one, Pages) else one.shape for one in history}) == 1


@pytest.mark.parametrize("nonce", [0, OTHER_NONCE])
def test_the_oracle_refuses_what_an_update_must_refuse(nonce: int) -> None:
    wanted = {Req.MC_DENSE_003, Req.MC_DENSE_004}
    for case in generate(nonce):
        if not case.id.startswith("dense-"):
            continue
        for step, result in Play(case).results():
            if step.expect.rejected_in == RUN:
                assert isinstance(result, OracleRefusal), case.id
                assert result.requirement in wanted, case.id
                if case.requirements[0] in wanted:
                    assert result.requirement is case.requirements[0], case.id


# Nonces


def digests(nonce: int) -> list[str]:
    return [f"{case.id} {case_json.digest(case)}" for case in generate(nonce)]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_bytes_in_every_process(seed: str) -> None:
    roots = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "reference")]
    program = (
        "from mutcache_conformance.cases import generate\n"
        "from mutcache_conformance.case_json import digest\n"
        f"for nonce in (0, {OTHER_NONCE}):\n"
        "    for case in generate(nonce):\n"
        "        print(case.id, digest(case))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(roots)}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == digests(0) + digests(OTHER_NONCE)


def test_a_nonce_changes_contents_and_names_but_no_outcome() -> None:
    for public, other in zip(generate(), generate(OTHER_NONCE), strict=True):
        assert public.id == other.id
        assert public.requirements == other.requirements
        assert public.twin == other.twin
        assert public.needs == other.needs
        assert [type(step) for step in public.script] == [type(step) for step in other.script]
        assert [step.expect for step in public.script] == [step.expect for step in other.script]
        assert case_json.digest(public) != case_json.digest(other)


def test_no_public_name_is_left_under_a_nonce() -> None:
    for case in generate(OTHER_NONCE):
        for data in case.models.values():
            graph = parse(data).graph
            names = {value.name for value in (*graph.input, *graph.output)}
            assert not names & {"cache", "values", "position", "updated_cache", "past"}, case.id


def test_a_nonce_draws_positions() -> None:
    def position(nonce: int) -> bytes | None:
        case = next(case for case in dense.cases(nonce) if case.id == "dense-002/middle")
        return next(storage.content for storage in case.storages if storage.name.startswith("position"))

    assert len({position(nonce) for nonce in range(20)}) == 4
