"""Tensors that a model keeps in files beside it: verified without reading the large ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from onnx import external_data_helper, helper

from mutcache.errors import DecodeError
from mutcache.model import Model
from mutcache.proto.onnx_ml import TensorProto
from mutcache.scopes import walk


def resolve_external_data(model: Model, folder: Path) -> None:
    """Make sure that all external data is there: initializers of the main graph are verified, the rest is read.

    What is read (initializers of subgraphs, attributes) is small, and stock onnx must see it.

    Raises:
        DecodeError: a file is missing, outside ``folder``, too short, or named by a malformed entry.
    """
    for tensor in model.proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            _verify(tensor, folder)
    for tensor in _inner_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            _verify(tensor, folder)
            external_data_helper.load_external_data_for_tensor(cast("Any", tensor), str(folder))
            tensor.data_location = TensorProto.DEFAULT
            tensor.ClearField("external_data")


def _inner_tensors(model: Model) -> Iterator[TensorProto]:
    for body in (model.graph, *model.functions.values()):
        for graph in walk(body):
            if graph is not model.graph:
                yield from graph.initializers.values()
            for node in graph.proto.node:
                for attribute in node.attribute:
                    if attribute.HasField("t"):
                        yield attribute.t
                    yield from attribute.tensors


def _verify(tensor: TensorProto, folder: Path) -> None:
    try:
        entry = external_data_helper.ExternalDataInfo(cast("Any", tensor))
        offset = int(entry.offset or 0)
        length = int(entry.length) if entry.length is not None else _nbytes(tensor)
        file = (folder / entry.location).resolve()
        if not entry.location or not file.is_relative_to(folder.resolve()):
            raise ValueError(f"location {entry.location!r} is no file below the model's folder")
        size = file.stat().st_size
        if not file.is_file():
            raise ValueError(f"location {entry.location!r} is no regular file")
        if min(offset, length) < 0 or offset + length > size:
            raise ValueError(f"{entry.location!r} has {size} bytes, offset {offset} + length {length} is needed")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DecodeError(
            f"external data of tensor {tensor.name!r} cannot be read: {error}",
            hint="keep the data files beside the model, or save the model with its tensors inside",
        ) from error


def _nbytes(tensor: TensorProto) -> int:
    return math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
