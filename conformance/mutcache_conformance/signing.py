"""A detached Ed25519 signature over a report, as an in-toto Statement with the test-result predicate.

``statement.json`` names the report's manifest, which lists every file, and ``report.json`` by their SHA-256, and says
what came out. ``signature.json`` holds the signature over the statement's bytes in the form in which DSSE signs them,
so that any implementation of Ed25519 can check it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from mutcache_conformance import manifest
from mutcache_conformance.schema import SchemaError, validate
from mutcache_conformance.status import Status

STATEMENT_NAME, SIGNATURE_NAME = manifest.SIGNED
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_SUBJECTS: Final = ("report.json", manifest.NAME)


class KeyFileError(ValueError):
    """A file holds no Ed25519 key of the wanted kind, or one with a password."""


class SignatureProblem(ValueError):  # noqa: N818 - a finding about a report, not a fault of this module
    """A report is not signed, or its signature does not hold."""


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file.

    Raises:
        KeyFileError: there is none.
    """
    key = _read(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} holds no private Ed25519 key: {_kind(key)}")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """The public key in a PEM file.

    Raises:
        KeyFileError: there is none.
    """
    key = _read(path)
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path} holds no public Ed25519 key: {_kind(key)}")
    return key


def statement(folder: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    """The in-toto Statement about the report of a folder, whose ``report.json`` holds ``report``."""
    verdicts = report["claim"]["profiles"]
    result = "PASSED" if all(verdict["verdict"] == "conformant" for verdict in verdicts) else "FAILED"
    outcomes = [(one["case"], Status(one["status"])) for one in report["results"]]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": manifest.digest(folder / name)}} for name in _SUBJECTS],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": result,
            "configuration": [
                {"name": "mutcache_conformance", "digest": {"sha256": report["suite"]["sources_sha256"]}},
                {"name": "cases", "digest": {"sha256": report["suite"]["cases_sha256"]}},
                *(
                    {"name": f"mustpass/{profile}.json", "digest": {"sha256": digest}}
                    for profile, digest in report["suite"]["mustpass_sha256"].items()
                ),
            ],
            "passedTests": [case for case, status in outcomes if status is Status.PASS],
            "warnedTests": [case for case, status in outcomes if status is not Status.PASS and not status.is_failure],
            "failedTests": [case for case, status in outcomes if status.is_failure],
        },
    }


def sign(folder: Path, key: Ed25519PrivateKey) -> None:
    """Write the statement about the report of a folder, and its signature."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    payload = (json.dumps(statement(folder, report), indent=1, ensure_ascii=False) + "\n").encode()
    signature = {
        "algorithm": "Ed25519",
        "payload": STATEMENT_NAME,
        "payload_type": PAYLOAD_TYPE,
        "key_sha256": key_digest(key.public_key()),
        "signature": base64.b64encode(key.sign(_authenticated(payload))).decode(),
    }
    _write(folder / STATEMENT_NAME, payload)
    _write(folder / SIGNATURE_NAME, (json.dumps(signature, indent=1) + "\n").encode())


def check(folder: Path, report: Mapping[str, Any], key: Ed25519PublicKey) -> None:
    """Check the signature of a report.

    Args:
        folder: the report folder.
        report: the content of its report.json.
        key: whose signature it must be.

    Raises:
        SignatureProblem: there is none, or it does not hold, or not for this report.
    """
    payload, signature = check_form(folder)
    if signature["key_sha256"] != key_digest(key):
        raise SignatureProblem(f"the signature is by another key, {signature['key_sha256'][:16]}...")
    try:
        key.verify(base64.b64decode(signature["signature"], validate=True), _authenticated(payload))
    except (InvalidSignature, ValueError):
        raise SignatureProblem("the signature does not hold: the statement was changed after it was signed") from None
    check_statement(folder, report)


def check_statement(folder: Path, report: Mapping[str, Any]) -> None:
    """Check that what was signed, by whomever, is the statement about this report.

    Raises:
        SignatureProblem: it is not, or it is none.
    """
    payload, _ = check_form(folder)
    if json.loads(payload) != statement(folder, report):
        raise SignatureProblem(f"{STATEMENT_NAME} is about another report")


def check_form(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """The statement's bytes, and the signature, which may be anybody's.

    Raises:
        SignatureProblem: there is none, or it is none.
    """
    try:
        payload = (folder / STATEMENT_NAME).read_bytes()
        signature: dict[str, Any] = json.loads((folder / SIGNATURE_NAME).read_bytes())
        validate(signature, "signature")
        json.loads(payload)
    except FileNotFoundError:
        present = [name for name in manifest.SIGNED if (folder / name).exists()]
        raise SignatureProblem(f"{present[0]} is there alone" if present else "the report is not signed") from None
    except (OSError, ValueError, RecursionError, SchemaError) as error:
        raise SignatureProblem(f"the signature cannot be read: {error}") from None
    return payload, signature


def key_digest(key: Ed25519PublicKey) -> str:
    """What a key is called: the SHA-256 of its DER form."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _authenticated(payload: bytes) -> bytes:
    """What DSSE signs: the type and the bytes, each with its length."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _read(path: Path) -> object:
    """The key in a PEM file, of whatever kind."""
    try:
        data = path.read_bytes()
        return load_pem_private_key(data, None) if b" PRIVATE KEY-" in data else load_pem_public_key(data)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    except TypeError:
        raise KeyFileError(f"{path} is protected by a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{path} holds no key in PEM form") from None


def _kind(key: object) -> str:
    half = "private" if hasattr(key, "private_bytes") else "public"
    return f"it is a {half} key, {type(key).__name__.strip('_')}"


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_bytes(data)
    os.replace(temporary, path)
