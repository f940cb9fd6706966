"""Reading and writing models that carry the delta, and exchanging them with the stock onnx package."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, cast

import onnx
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import EncodeError as ProtobufEncodeError
from onnx import external_data_helper

from mutcache.errors import DecodeError, MutcacheError
from mutcache.proto.onnx_ml import ModelProto

PathLike = str | os.PathLike[str]


def parse(data: bytes, *, source: str = "model") -> ModelProto:
    """The model that ``data`` serializes.

    Raises:
        DecodeError: ``data`` is no ONNX model (not a protobuf, truncated, or nested deeper than protobuf reads).
    """
    try:
        model = ModelProto.FromString(data)
    except ProtobufDecodeError as error:
        raise DecodeError(
            f"{source} is not a readable ONNX model ({len(data)} bytes): {error}",
            hint="the file may be truncated, no protobuf, or nest more than about 33 subgraphs",
        ) from error
    if not model.HasField("graph"):
        raise DecodeError(f"{source} is not an ONNX model: it has no graph ({len(data)} bytes)")
    return model


def serialize(model: ModelProto) -> bytes:
    """The bytes of ``model``, the same for the same content.

    Raises:
        MutcacheError: the model is larger than protobuf's 2 GiB.
    """
    try:
        return model.SerializeToString(deterministic=True)
    except (ProtobufEncodeError, ValueError) as error:
        raise MutcacheError(
            f"the model cannot be serialized: {error}",
            hint="protobuf holds less than 2 GiB: save the tensors as external data",
        ) from error


def load(path: PathLike, *, external_data: bool = True) -> ModelProto:
    """Read a model, and the tensors it keeps in other files beside it.

    Raises:
        DecodeError: the file, or a file of external data, is missing or unreadable.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DecodeError(f"cannot read {os.fspath(path)!r}: {error.strerror or error}") from error
    model = parse(data, source=repr(os.fspath(path)))
    if external_data:
        load_external_data(model, Path(path).parent)
    return model


def load_external_data(model: ModelProto, folder: PathLike) -> None:
    """Read into ``model`` every tensor that it keeps in a file of ``folder``.

    Raises:
        DecodeError: a file is missing, too short, outside ``folder``, or named by a malformed entry.
    """
    try:
        # onnx's helper touches only fields that the delta leaves alone, so it serves our classes too.
        external_data_helper.load_external_data_for_model(cast("Any", model), os.fspath(folder) or ".")
    except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise DecodeError(f"external data of the model cannot be read from {os.fspath(folder)!r}: {error}") from error


def save(model: ModelProto, path: PathLike, *, external_data: str | None = None, size_threshold: int = 1024) -> None:
    """Write ``model`` to ``path``; a failure leaves what was there before.

    Args:
        model: the model, which is not modified.
        path: the file to write.
        external_data: file name, in the same folder, that takes the bytes of the large tensors; None keeps them inside.
        size_threshold: tensors of at least so many bytes go to ``external_data``.

    Raises:
        MutcacheError: the model is too large for one protobuf, or ``external_data`` is not a plain file name.
        OSError: the folder cannot be written.
    """
    target = Path(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        staging = Path(folder)
        if external_data is not None:
            if Path(external_data).name != external_data or external_data == target.name:
                raise MutcacheError(
                    f"external data must be a plain file name beside the model {target.name!r}, got {external_data!r}"
                )
            stored = ModelProto()
            stored.CopyFrom(model)
            external_data_helper.convert_model_to_external_data(
                cast("Any", stored), location=external_data, size_threshold=size_threshold, convert_attribute=True
            )
            external_data_helper.write_external_data_tensors(cast("Any", stored), folder)
            model = stored
        (staging / target.name).write_bytes(serialize(model))
        if external_data is not None and (staging / external_data).exists():
            os.replace(staging / external_data, target.parent / external_data)
        os.replace(staging / target.name, target)


def to_onnx(model: ModelProto) -> onnx.ModelProto:
    """The same model in the stock package's class, which keeps the delta as unknown fields."""
    return onnx.ModelProto.FromString(serialize(model))


def from_onnx(model: onnx.ModelProto) -> ModelProto:
    """The same model in the delta's class; fields of the delta that the stock class kept are visible again."""
    return parse(model.SerializeToString(deterministic=True))
