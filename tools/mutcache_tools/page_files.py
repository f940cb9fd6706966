"""Page tables on a command line: files with a SequenceProto or a MapProto of quantized tensors."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from google.protobuf.message import DecodeError as ProtobufDecodeError

from mutcache.model import MapType, Value
from mutcache.page_protos import page_table_from_proto, page_table_to_proto
from mutcache.paging import PageTable
from mutcache.proto.onnx_data import MapProto, SequenceProto
from mutcache.proto.onnx_ml import ModelProto
from mutcache_tools.output import UsageError
from mutcache_tools.words import storage_words


def read_pages(path: str, model: ModelProto, value: Value) -> PageTable:
    """The pages in a file: a SequenceProto, or for a map a MapProto.

    Raises:
        UsageError: the file cannot be read, or holds something else.
        DecodeError: it holds something else than pages.
    """
    kind = MapProto if isinstance(value.type, MapType) else SequenceProto
    try:
        proto = kind.FromString(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{value.name}={path}: no readable file ({error.strerror})") from None
    except ProtobufDecodeError as error:
        raise UsageError(f"{path!r} is no readable {kind.__name__}: {error}") from None
    return page_table_from_proto(proto, model=model, value=value.name)


def empty_table(model: ModelProto, value: Value) -> PageTable:
    """A table without pages."""
    return PageTable({} if isinstance(value.type, MapType) else [], model=model, value=value.name)


def write_pages(path: str, table: PageTable) -> None:
    """Write the pages of a table; a failure leaves what was there before."""
    target = Path(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        staging = Path(folder) / "pages"
        staging.write_bytes(page_table_to_proto(table).SerializeToString(deterministic=True))
        os.replace(staging, target)


def table_words(table: PageTable, model: ModelProto) -> str:
    """How many pages of which types: ``3 pages: 2 INT4, 1 INT8``."""
    counts = Counter(storage_words(model.quantizations[page.quantized_type]) for page in table.values())
    total = f"{len(table)} page{'s' * (len(table) != 1)}"
    return f"{total}: {', '.join(f'{count} {words}' for words, count in counts.items())}" if counts else total
