"""What a case may vary: names, positions and contents, drawn from a nonce.

Every drawn thing has a stream of its own, named by a label, so that two cases of one family (a negative one and its
valid twin) draw the same things whatever else each of them draws, and adding a draw changes no other.
"""

from __future__ import annotations

import hashlib
import random
import string

import numpy as np
from onnx import TensorProto, helper

from mutcache_conformance.case import Storage

#: The nonce of the public corpus, whose values have the names that a reader expects.
PUBLIC = 0


def itemsize(dtype: int) -> int:
    """Bytes of one element of a TensorProto.DataType that has whole bytes."""
    return int(helper.tensor_dtype_to_np_dtype(dtype).itemsize)


def int64(*values: int) -> bytes:
    """The bytes of INT64 elements."""
    return np.array(values, "<i8").tobytes()


class Draw:
    """Everything drawn for one family of cases.

    Args:
        nonce: the number that the draws depend on.
        family: what the cases that share the draws are called.
    """

    def __init__(self, nonce: int, family: str) -> None:
        self.nonce = nonce
        self.family = family

    def _stream(self, label: str) -> random.Random:
        digest = hashlib.sha256(f"{self.nonce}\n{self.family}\n{label}".encode()).digest()
        return random.Random(int.from_bytes(digest))

    def name(self, role: str) -> str:
        """A name for a value or symbol; the role itself in the public corpus. An absent operand stays nameless."""
        if self.nonce == PUBLIC or not role:
            return role
        stream = self._stream(f"name {role}")
        return "".join(stream.choices(string.ascii_letters, k=4 + stream.randrange(8))) + f"_{stream.randrange(100)}"

    def integer(self, label: str, low: int, high: int) -> int:
        """An integer of the closed range."""
        return self._stream(f"integer {label}").randint(low, high)

    def integers(self, label: str, count: int, low: int, high: int) -> list[int]:
        """Integers of the closed range."""
        stream = self._stream(f"integers {label}")
        return [stream.randint(low, high) for _ in range(count)]

    def content(self, label: str, dtype: int, shape: tuple[int, ...]) -> bytes:
        """Any bits at all, NaN payloads included; BOOL elements are 0 or 1, the only bytes they may have."""
        count = int(np.prod(shape, dtype=np.int64))
        stream = self._stream(f"content {label}")
        if dtype == TensorProto.BOOL:
            return bytes(stream.choices((0, 1), k=count))
        return stream.randbytes(count * itemsize(dtype))

    def storage(self, name: str, dtype: int, shape: tuple[int, ...], *, label: str = "") -> Storage:
        """Row-major storage with drawn content. ``label`` shares the content of another storage's."""
        return Storage(name, dtype, shape, self.content(label or name, dtype, shape))

    def small_integers(self, name: str, dtype: int, shape: tuple[int, ...]) -> Storage:
        """Storage with numbers of at most 100, for operators that compute (every type here has them exactly)."""
        count = int(np.prod(shape, dtype=np.int64))
        numbers = np.array(self.integers(f"content {name}", count, -100, 100))
        return Storage(name, dtype, shape, numbers.astype(helper.tensor_dtype_to_np_dtype(dtype)).tobytes())
