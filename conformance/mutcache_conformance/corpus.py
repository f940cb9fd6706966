"""The cases as folders, for harnesses that need no Python: what each step is, and what it must leave behind.

``README.md`` of the folder, which is ``corpus_readme.md`` here, describes the format. The same cases always give the
same bytes, and the folder alone is enough to check it, or to play it against a runtime.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from mutcache_conformance import case_json, expectation, manifest, provenance
from mutcache_conformance.case import Case
from mutcache_conformance.dtypes import number_of
from mutcache_conformance.expectation import Outcome, TableState
from mutcache_conformance.oracle import Contents
from mutcache_conformance.overlay import Overlay
from mutcache_conformance.schema import SchemaError, validate

FORMAT: Final = 1
NAME: Final = "corpus.json"
_CASES: Final = "cases"
_PACKAGE: Final = files("mutcache_conformance")
_SCHEMAS: Final = ("case", "corpus", "expected")


class CorpusError(ValueError):
    """A folder is no corpus, or not an intact one."""


def write(cases: Iterable[Case], folder: Path, *, nonce: int) -> int:
    """Write cases into a new folder, and return how many they are.

    Args:
        cases: the cases; the valid twin of each that has one is among them.
        folder: does not exist, or is empty.
        nonce: what the cases were drawn from, for the record.

    Raises:
        OSError: the folder has something in it, or cannot be written.
    """
    cases = list(cases)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for case in cases:
            _write(made / _CASES / case.id, files_of(case))
        _write(made, {NAME: _json(_index(cases, nonce)), **_documents()})
        manifest.write(made)
        made.chmod(0o755)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return len(cases)


def load(folder: Path) -> dict[str, Case]:
    """The cases of a folder, by id, in its order.

    Raises:
        CorpusError: it has none that can be read.
    """
    return {entry["case"]: _load_case(folder, entry) for entry in _entries(folder)}


def _entries(folder: Path) -> list[dict[str, Any]]:
    """What the index says of each case."""
    path = folder / NAME
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        validate(index, "corpus")
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError, SchemaError) as error:
        raise CorpusError(f"{path}: {error}") from None
    return list(index["cases"])


def problems(folder: Path) -> Iterator[str]:
    """What is wrong with a folder: files that are changed, gone or added, and expected bytes that are not right.

    Raises:
        CorpusError: it is no corpus.
    """
    try:
        yield from manifest.problems(folder)
    except manifest.ManifestError as error:
        raise CorpusError(f"{folder}: {error}") from None
    entries = _entries(folder)
    ids = {entry["case"] for entry in entries}
    for entry in entries:
        try:
            case = _load_case(folder, entry)
        except CorpusError as error:
            yield str(error)
            continue
        if case.twin and case.twin not in ids:
            yield f"{case.id}: its valid twin {case.twin} is not there"
        home = folder / _CASES / case.id
        must = files_of(case)
        found = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
        for name in sorted({*must, *found}):
            if name not in found or name not in must or found[name].read_bytes() != must[name]:
                yield f"{case.id}: {name} is not what the specification makes of the case"


def _load_case(folder: Path, entry: Mapping[str, Any]) -> Case:
    home = folder / _CASES / entry["case"]
    try:
        case = case_json.load(home)
    except OSError as error:
        raise CorpusError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise CorpusError(str(error)) from None
    if case.id != entry["case"] or case_json.digest(case) != entry["sha256"]:
        raise CorpusError(f"{home / 'case.json'} is not the case that {NAME} lists")
    return case


def _index(cases: Sequence[Case], nonce: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "nonce": nonce,
        "specification": provenance.specification(),
        "cases": [
            {
                "case": case.id,
                "profile": case.profile.value,
                "requirements": [requirement.value for requirement in case.requirements],
                "twin": case.twin,
                "needs": sorted(case.needs),
                "required": case.required,
                "sha256": case_json.digest(case),
            }
            for case in cases
        ],
    }


def _documents() -> dict[str, bytes]:
    """What explains the format: the README and the schemas."""
    schemas = {f"schemas/{name}.json": (_PACKAGE / "schemas" / f"{name}.json").read_bytes() for name in _SCHEMAS}
    return {"README.md": (_PACKAGE / "corpus_readme.md").read_bytes(), **schemas}


def files_of(case: Case) -> dict[str, bytes]:
    """The files of a case by their path in its folder; ``case_json.load`` reads it."""
    made = {f"{name}.onnx": model for name, model in case.models.items()}
    made |= {f"{one.name}.bin": one.content for one in case.storages if one.content is not None}
    expected = _Expected(case)
    return {
        "case.json": _json(case_json.to_json(case)),
        **made,
        "expected.json": _json(expected.document),
        **expected.files,
    }


class _Expected:
    """``expected.json`` of a case, and the files that it names beside those of the case."""

    def __init__(self, case: Case) -> None:
        self.files: dict[str, bytes] = {}
        self._index = 0
        #: Contents that have a file, and its name: nothing is written twice.
        self._known = {one.content: f"{one.name}.bin" for one in case.storages if one.content is not None}
        steps = []
        for self._index, (step, outcomes) in enumerate(zip(case.script, expectation.outcomes(case), strict=True)):
            told = [self._outcome(outcome) for outcome in outcomes]
            distinct = [one for number, one in enumerate(told) if one not in told[:number]]
            steps.append({"index": self._index, "step": type(step).__name__.lower(), "outcomes": distinct})
        self.document = {"format": FORMAT, "case": case.id, "case_sha256": case_json.digest(case), "steps": steps}

    def _outcome(self, outcome: Outcome) -> dict[str, Any]:
        told: dict[str, Any] = {"answer": outcome.answer}
        if outcome.storages:
            told["storages"] = {name: self._elements(name, one) for name, one in outcome.storages.items()}
        if outcome.tables:
            told["tables"] = {name: self._table(name, table) for name, table in outcome.tables.items()}
        if outcome.outputs:
            told["outputs"] = {
                name: self._output(name, one, is_exact=name not in outcome.inexact)
                for name, one in outcome.outputs.items()
            }
        return told

    def _elements(self, name: str, elements: Contents) -> dict[str, Any]:
        if isinstance(elements, Overlay):
            return {"written": [{"offset": str(at), "hex": data.hex()} for at, data in _ranges(elements)]}
        return {"file": self._file(name, elements.tobytes())}

    def _output(self, name: str, value: Contents | str, *, is_exact: bool) -> dict[str, Any]:
        if isinstance(value, str):
            return {"is": value}
        form = {"dtype": number_of(value.dtype), "shape": list(value.shape)}
        return {**form, "file": self._file(name, value.tobytes()), "exact": is_exact}

    def _table(self, name: str, table: TableState) -> dict[str, Any]:
        pages = [
            {
                **({} if page.key is None else {"key": str(page.key)}),
                "quantized_type": page.quantized_type,
                "dims": list(page.dims),
                "storage": storage,
                "file": self._file(f"{name}.{number}", page.payload),
                "exact": not page.is_fresh,
            }
            for number, (page, storage) in enumerate(zip(table.pages.pages, table.storages, strict=True))
        ]
        return {"container": table.pages.container, "pages": pages}

    def _file(self, name: str, content: bytes) -> str:
        if content not in self._known:
            path = f"expected/{self._index}.{name}.bin"
            number = 1
            while path in self.files:  # another outcome of the same step
                number += 1
                path = f"expected/{self._index}.{name}.{number}.bin"
            self.files[path] = content
            self._known[content] = path
        return self._known[content]


def _ranges(written: Overlay) -> Iterator[tuple[int, bytes]]:
    """What is written, by ranges without gaps."""
    start, data = 0, b""
    for at, element in sorted(written.items()):
        if data and at != start + len(data):
            yield start, data
            data = b""
        if not data:
            start = at
        data += element
    if data:
        yield start, data


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
