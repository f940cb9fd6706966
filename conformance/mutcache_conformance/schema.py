"""The committed JSON schemas, compiled once."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match


class SchemaError(Exception):
    """A document does not follow its schema."""


@functools.cache
def load(name: str) -> dict[str, Any]:
    """The schema ``schemas/NAME.json``."""
    schema: dict[str, Any] = json.loads((files("mutcache_conformance") / "schemas" / f"{name}.json").read_text("utf-8"))
    return schema


@functools.cache
def _validator(name: str, definition: str) -> Draft202012Validator:
    root = load(name)
    return Draft202012Validator(_inlined(root["$defs"][definition] if definition else root, root))


def _inlined(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema with what references lead to in their place: following one costs more than what it says.

    Nothing in the schemas refers to itself; ``RecursionError`` says so at once if it ever does.
    """
    if isinstance(schema, list):
        return [_inlined(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _inlined(value, root) for key, value in schema.items() if key not in ("$defs", "$ref")}
    if isinstance(made.get("pattern"), str):  # the end of a text, where Python's $ allows for a newline before it
        made["pattern"] = re.sub(r"\$$", r"\\Z", made["pattern"])
    if not isinstance(schema.get("$ref"), str):
        return made
    target: Any = root
    for part in schema["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    made.pop("description", None)
    inlined = _inlined(target, root)
    return {"allOf": [inlined, made]} if inlined.keys() & made.keys() else {**inlined, **made}


def validate(document: Any, name: str, definition: str = "") -> None:
    """Compare a document with a schema, or with one of the definitions in it.

    Raises:
        SchemaError: naming the place and what is wrong there.
    """
    try:
        error = best_match(_validator(name, definition).iter_errors(document))
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    if error is not None:
        raise SchemaError(f"{error.json_path}: {error.message[:300]}")
