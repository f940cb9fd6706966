"""Signatures: made by one key over one report, and good for nothing else."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sealed_reports as sealed
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from toy_cases import OVERFLOW

from mutcache_conformance import manifest, signing

KEY = Ed25519PrivateKey.generate()


@pytest.fixture(autouse=True)
def _corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.replace_corpus(monkeypatch)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        sealed.replace_corpus(patch)
        folder = sealed.make(tmp_path_factory.mktemp("signed"), "toy_runtime:Clamping")
        signing.sign(folder, KEY)
        yield folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "report")


def _problems(folder: Path, key: Ed25519PrivateKey = KEY) -> list[str]:
    return [one for one in sealed.problems(folder, key=key.public_key()) if one.startswith("signature: ")]


def test_a_signed_report_is_sound(folder: Path) -> None:
    made = sealed.check(folder, key=KEY.public_key())
    assert made.is_sound, made.problems
    assert "it is signed; --key PUB checks by whom" in sealed.check(folder).notes


def test_the_statement_is_one_of_in_toto(folder: Path) -> None:
    statement = json.loads((folder / "statement.json").read_bytes())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert {one["name"]: one["digest"]["sha256"] for one in statement["subject"]} == {
        name: manifest.digest(folder / name) for name in ("report.json", "manifest.json")
    }
    predicate = statement["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"] == [OVERFLOW.id]
    assert len(predicate["passedTests"]) == 4
    assert predicate["warnedTests"] == ["toy-006/optional"]


def test_the_signature_is_over_what_dsse_signs(folder: Path) -> None:
    payload = (folder / "statement.json").read_bytes()
    signature = json.loads((folder / "signature.json").read_bytes())
    signed = b"DSSEv1 28 application/vnd.in-toto+json " + str(len(payload)).encode() + b" " + payload
    KEY.public_key().verify(base64.b64decode(signature["signature"]), signed)


def test_another_key_is_told_apart(folder: Path) -> None:
    (problem,) = _problems(folder, Ed25519PrivateKey.generate())
    assert problem.startswith("signature: the signature is by another key")


def test_what_only_a_signature_protects(folder: Path) -> None:
    report = sealed.read(folder)
    report["product"]["vendor"] = "Somebody else"
    sealed.reseal(folder, report)
    assert sealed.problems(folder) == ["signature: statement.json is about another report"]
    assert _problems(folder) == ["signature: statement.json is about another report"]
    for name in ("statement.json", "signature.json"):
        (folder / name).unlink()
    assert sealed.check(folder).is_sound


@pytest.mark.parametrize("name", ["statement.json", "signature.json"])
def test_a_signature_that_is_none_is_found_without_a_key(folder: Path, name: str) -> None:
    (folder / name).write_text("rubbish")
    assert any("the signature cannot be read" in problem for problem in sealed.problems(folder))


def _statement(folder: Path) -> None:
    path = folder / "statement.json"
    path.write_bytes(path.read_bytes().replace(b'"FAILED"', b'"PASSED"'))


def _signature(folder: Path) -> None:
    path = folder / "signature.json"
    data = json.loads(path.read_bytes())
    data["signature"] = base64.b64encode(bytes(64)).decode()
    path.write_text(json.dumps(data))


def _no_base64(folder: Path) -> None:
    path = folder / "signature.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "signature": "?"}))


def _gone(folder: Path) -> None:
    (folder / "signature.json").unlink()


def _garbage(folder: Path) -> None:
    (folder / "signature.json").write_text("[")


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (_statement, "does not hold"),
        (_signature, "does not hold"),
        (_no_base64, "does not hold"),
        (_gone, "statement.json is there alone"),
        (_garbage, "cannot be read"),
    ],
)
def test_a_signature_that_is_none(folder: Path, tamper: Callable[[Path], None], words: str) -> None:
    tamper(folder)
    (problem,) = _problems(folder)
    assert words in problem


def test_half_a_signature_is_found_without_a_key(folder: Path) -> None:
    _gone(folder)
    assert "signature: statement.json is there alone" in sealed.problems(folder)


def test_keys_are_read_from_pem_files(tmp_path: Path) -> None:
    private, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    private.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert signing.read_private_key(private).private_bytes_raw() == KEY.private_bytes_raw()
    assert signing.read_public_key(public).public_bytes_raw() == KEY.public_key().public_bytes_raw()
    with pytest.raises(signing.KeyFileError, match="no private Ed25519 key: it is a public key, Ed25519PublicKey"):
        signing.read_private_key(public)
    with pytest.raises(signing.KeyFileError, match="no public Ed25519 key: it is a private key, Ed25519PrivateKey"):
        signing.read_public_key(private)
    public.write_text("rubbish")
    with pytest.raises(signing.KeyFileError, match="holds no key in PEM form"):
        signing.read_public_key(public)
    with pytest.raises(signing.KeyFileError, match="cannot be read: No such file"):
        signing.read_public_key(tmp_path / "none.pem")


def test_keys_of_other_kinds_and_with_passwords_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(signing.KeyFileError, match="holds no private Ed25519 key"):
        signing.read_private_key(path)
    path.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    with pytest.raises(signing.KeyFileError, match="is protected by a password"):
        signing.read_private_key(path)
