"""Caches too large to hold: what a run writes to them, in place of what they then contain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np


class Overlay(dict[int, bytes]):
    """The contents of a cache, as elements written over those that it had before the run.

    The keys are byte offsets of elements in row-major order, the values their bytes. It is a dict because that is what
    the evaluator of standard operators hands on from node to node; an operator that would read the cache fails on it.

    Args:
        dtype: element type of the cache.
        shape: its dimensions.
        written: the elements written so far.
    """

    def __init__(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], written: Mapping[int, bytes] | None = None
    ) -> None:
        super().__init__(written or {})
        self.dtype = dtype
        self.shape = shape

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole cache."""
        return math.prod(self.shape) * self.dtype.itemsize

    def over(self, written: Mapping[int, bytes]) -> Self:
        """The contents after a further update."""
        return type(self)(self.dtype, self.shape, {**self, **written})

    def copy(self) -> Self:
        """The same contents, with an identity of their own."""
        return self.over({})
