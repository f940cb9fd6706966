"""Model files that commands read and write, without reading the large tensors that nobody looks at."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mutcache.decode import decode
from mutcache.external import resolve_external_data
from mutcache.proto import load, load_external_data, save
from mutcache.proto.onnx_ml import ModelProto, TensorProto


def read_model(path: str) -> ModelProto:
    """The model without the bytes of its external initializers, which must be in place nevertheless.

    Raises:
        DecodeError: the model is unreadable, or a file with its tensors is missing, too short, or outside its folder.
    """
    model = load(path, external_data=False)
    resolve_external_data(decode(model), Path(path).parent)
    return model


def write_model(model: ModelProto, out: str, *, source: str) -> None:
    """Write what was made of the model ``source``; a failure leaves ``out`` as it was.

    In the folder of ``source`` the new model refers to the same external data; in another folder it gets a copy of
    its own, ``OUT.data``.

    Raises:
        DecodeError: the external data cannot be read.
        OSError: the folder cannot be written.
    """
    target = Path(out)
    is_split = any(tensor.data_location == TensorProto.EXTERNAL for tensor in model.graph.initializer)
    if not is_split or target.parent.resolve() == Path(source).parent.resolve():
        save(model, target)
        return
    complete = ModelProto()
    complete.CopyFrom(model)
    load_external_data(complete, Path(source).parent)
    save(complete, target, external_data=f"{target.name}.data")


def write_text(path: str, text: str) -> None:
    """Write a text file in UTF-8; a failure leaves what was there before.

    Raises:
        OSError: the folder cannot be written.
    """
    target = Path(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        staging = Path(folder) / "text"
        staging.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(staging, target)
