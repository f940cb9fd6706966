"""The JSON form of a case, and a case as a folder that needs no Python: ``case.json``, models and tensors beside it.

``case.json`` names files by their digest; the digest of a case is that of its canonical JSON, and so stands for every
byte of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Phase, Profile, Req
from mutcache_conformance.case import (
    Bind,
    Case,
    Expect,
    Finish,
    Load,
    Measure,
    Page,
    PageTable,
    Release,
    Run,
    Start,
    Step,
    Storage,
    Unload,
    Write,
)
from mutcache_conformance.evidence import canonical_json
from mutcache_conformance.schema import SchemaError, validate

FORMAT: Final = 1
_STEPS: Final[Mapping[str, type[Step]]] = {
    "load": Load,
    "bind": Bind,
    "run": Run,
    "start": Start,
    "finish": Finish,
    "release": Release,
    "unload": Unload,
    "write": Write,
}


def to_json(case: Case) -> dict[str, Any]:
    """The JSON form; models and contents stand in it as SHA-256."""
    tables = {"tables": [_table_json(table) for table in case.tables]} if case.tables else {}
    return {
        "format": FORMAT,
        "id": case.id,
        "requirements": [requirement.value for requirement in case.requirements],
        "profile": case.profile.value,
        "title": case.title,
        "twin": case.twin,
        "needs": sorted(case.needs),
        "required": case.required,
        "measure": None if case.measure is None else _measure_json(case.measure),
        "models": {name: sha256(model) for name, model in case.models.items()},
        "storages": [_storage_json(storage) for storage in case.storages],
        **tables,
        "script": [_step_json(step) for step in case.script],
    }


def digest(case: Case) -> str:
    """SHA-256 of the canonical bytes of a case."""
    return sha256(canonical_json(to_json(case)))


def save(case: Case, folder: Path) -> None:
    """Write ``case.json``, one ``.onnx`` file per model and one ``.bin`` file per storage with content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(to_json(case), indent=2) + "\n", encoding="utf-8")
    for name, model in case.models.items():
        (folder / f"{name}.onnx").write_bytes(model)
    for storage in case.storages:
        if storage.content is not None:
            (folder / f"{storage.name}.bin").write_bytes(storage.content)


def load(folder: Path) -> Case:
    """The case that ``save`` wrote.

    Raises:
        OSError: a file is missing.
        ValueError: it is no case, or a file is not what ``case.json`` says.
    """
    path = folder / "case.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        canonical_json(data)  # or it has half a character in it, or a number that is none
        validate(data, "case")
    except (ValueError, RecursionError, SchemaError) as error:
        raise ValueError(f"{path} is no case: {error or 'it is nested too deeply'}") from None
    return Case(
        id=data["id"],
        requirements=tuple(Req(requirement) for requirement in data["requirements"]),
        profile=Profile(data["profile"]),
        title=data["title"],
        models={name: _read(folder / f"{name}.onnx", expected) for name, expected in data["models"].items()},
        storages=tuple(_storage(item, folder) for item in data["storages"]),
        script=tuple(_step(item) for item in data["script"]),
        twin=data["twin"],
        needs=frozenset(data["needs"]),
        required=data["required"],
        measure=None if data["measure"] is None else _measure(data["measure"]),
        tables=tuple(_table(item) for item in data.get("tables", [])),
    )


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, expected: str) -> bytes:
    data = path.read_bytes()
    if sha256(data) != expected:
        raise ValueError(f"{path} is not the file that case.json names: its SHA-256 differs")
    return data


def _storage_json(storage: Storage) -> dict[str, Any]:
    return {
        "name": storage.name,
        "dtype": storage.dtype,
        "shape": list(storage.shape),
        "content": None if storage.content is None else sha256(storage.content),
        "strides": None if storage.strides is None else list(storage.strides),
        "writable": storage.writable,
        "alignment": storage.alignment,
        "misalignment": storage.misalignment,
        "origin": storage.origin,
        "within": storage.within,
        "offset": storage.offset,
    }


def _storage(data: Mapping[str, Any], folder: Path) -> Storage:
    content = None if data["content"] is None else _read(folder / f"{data['name']}.bin", data["content"])
    return Storage(
        **{
            **data,
            "shape": tuple(data["shape"]),
            "strides": None if data["strides"] is None else tuple(data["strides"]),
            "content": content,
        }
    )


def _table_json(table: PageTable) -> dict[str, Any]:
    pages = [
        {
            "quantized_type": page.quantized_type,
            "dims": list(page.dims),
            "storage": page.storage,
            "nbytes": page.nbytes,
            "key": page.key,
        }
        for page in table.pages
    ]
    return {"name": table.name, "container": table.container, "budget": table.budget, "pages": pages}


def _table(data: Mapping[str, Any]) -> PageTable:
    pages = tuple(Page(**{**page, "dims": tuple(page["dims"])}) for page in data["pages"])
    return PageTable(**{**data, "pages": pages})


def _measure_json(measure: Measure) -> dict[str, Any]:
    pages = {"pages": measure.pages} if measure.pages else {}
    return {"compare": list(measure.compare), **pages}


def _measure(data: Mapping[str, Any]) -> Measure:
    return Measure(tuple(data["compare"]), data.get("pages", ""))


def _step_json(step: Step) -> dict[str, Any]:
    fields = {name: getattr(step, name) for name in step.__dataclass_fields__ if name != "expect"}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
    choice = {"may_succeed": True} if step.expect.may_succeed else {}
    return {"step": type(step).__name__.lower(), **plain, "rejected_in": _phases(step.expect.rejected_in), **choice}


def _step(data: Mapping[str, Any]) -> Step:
    fields = {name: value for name, value in data.items() if name not in ("step", "rejected_in", "may_succeed")}
    expect = Expect(frozenset(Phase(phase) for phase in data["rejected_in"]), data.get("may_succeed", False))
    return _STEPS[data["step"]](**fields, expect=expect)


def _phases(phases: Iterable[Phase]) -> list[str]:
    """Phases in the order in which they come."""
    order = list(Phase)
    return [phase.value for phase in sorted(phases, key=order.index)]
