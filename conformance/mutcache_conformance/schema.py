"""The committed JSON schemas, compiled once."""

from __future__ import annotations

import functools
import json
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
    schema = load(name)
    if definition:
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{definition}"}
    return Draft202012Validator(schema)


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
