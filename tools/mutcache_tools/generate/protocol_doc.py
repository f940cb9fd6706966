"""The messages in ``docs/protocol.rst``, from the JSON schema of the wire protocol.

The rest of that page is written by hand; what lies between two comments belongs to this generator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mutcache_tools.generate import ROOT, Files, SourceError

PAGE: Final = Path("docs/protocol.rst")
SCHEMA: Final = Path("conformance/mutcache_conformance/schemas/protocol.json")
BEGIN: Final = ".. begin generated: from schemas/protocol.json by mutcache_tools.generate, do not edit\n"
END: Final = ".. end generated\n"
#: Definitions that are told in a word wherever they are used; those in ``_PARTS`` have a table of their own.
_WORDS: Final = {
    "id": "number of a request",
    "bytes": "decimal string",
    "name": "string, not empty",
    "phase": "phase",
    "files": "list of `file`_ (253 or fewer)",
    "storages": "object: value name to `storage`_",
    "tables": "object: value name to `table`_",
    "key": "decimal string",
}
_PARTS: Final = ("file", "storage", "table", "page", "output", "output-table", "output-page", "product")

#: How what a schema limits is told.
_LIMITS: Final = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "of length {} or more",
    "minItems": "({} or more)",
    "maxItems": "({} or fewer)",
    "minProperties": "({} or more)",
}

Schema = Mapping[str, Any]


def generate() -> Files:
    """The page, with its generated part made anew.

    Raises:
        SourceError: the page has lost the comments between which that part lies.
    """
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SourceError(f"{PAGE} must have the lines {BEGIN.strip()!r} and {END.strip()!r}")
    messages = render(json.loads((ROOT / SCHEMA).read_text(encoding="utf-8")))
    return {PAGE: f"{before}{begin}\n{messages}{end}{after}"}


def render(schema: Schema) -> str:
    """Every message and its parts, as sections of reStructuredText."""
    definitions = schema["$defs"]
    lines: list[str] = []
    for kind, field in (("request", "op"), ("answer", "answer")):
        lines += [f"{kind.capitalize()}s", "-" * (len(kind) + 1), ""]
        for reference in definitions[kind]["oneOf"]:
            name = reference["$ref"].removeprefix("#/$defs/")
            message = definitions[name]
            word = message["properties"][field]["const"]
            what = name.removeprefix(f"{kind}-").removesuffix(f"-{word}")
            title = f"``{word}``" if what == word else f"``{word}`` to ``{what}``"
            lines += [title, "~" * len(title), "", *_body(message, definitions)]
    lines += ["Parts", "-----", ""]
    for name in _PARTS:
        lines += [name, "~" * len(name), "", *_body(definitions[name], definitions)]
    return "\n".join(lines)


def _body(message: Schema, definitions: Schema) -> Iterator[str]:
    if "description" in message:
        yield from (message["description"], "")
    yield from (".. list-table::", "   :header-rows: 1", "", "   * - field", "     - type", "     - meaning")
    for name, field in message["properties"].items():
        optional = "" if name in message["required"] else " (optional)"
        yield f"   * - ``{name}``{optional}"
        yield f"     - {_type(field)}"
        yield f"     - {_meaning(field, definitions)}".rstrip()
    yield ""


def _type(field: Schema) -> str:
    """The type of a field in words."""
    if "$ref" in field:
        name = field["$ref"].removeprefix("#/$defs/")
        return _WORDS.get(name, f"`{name}`_")
    if "const" in field:
        return f"``{json.dumps(field['const'])}``"
    if "enum" in field:
        return " or ".join(f"``{json.dumps(value)}``" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(choice) for choice in field["anyOf"])
    if "if" in field:
        return f"{_type(field['else'])} or {_type(field['then'])}"
    kind: str = field["type"]
    if kind == "array":
        kind = f"list of {_type(field['items'])}"
    elif kind == "object":
        kind = f"object: name to {_type(field['additionalProperties'])}"
    elif "pattern" in field:
        kind = f"string ``{field['pattern']}``"
    limits = [words.format(field[key]) for key, words in _LIMITS.items() if key in field]
    return " ".join([kind, *limits])


def _meaning(field: Schema, definitions: Schema) -> str:
    """What the schema says of a field, or of the definition that it refers to."""
    referred = definitions.get(field.get("$ref", "").removeprefix("#/$defs/"), {})
    text: str = field.get("description", "")
    return text or ("" if "properties" in referred else referred.get("description", ""))
