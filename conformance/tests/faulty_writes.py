"""Runtimes that write the wrong bytes, or take the wrong positions. Each has one fault; its docstring is the idea."""

from __future__ import annotations

import ctypes

import numpy as np
from hooked_runtime import HookedBinding, HookedSession, Outputs, Sound, Storages, bind_copies

from mutcache.proto.onnx_ml import ModelProto
from mutcache_conformance.adapter import OutputValue, Rejected


class SilentCopy(Sound):
    """Updates a copy of the cache, and returns it."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return bind_copies(session, mutable, outputs, lambda _: True)


class CopyAndCopyBack(SilentCopy):
    """Updates a copy of the cache, returns it, and writes it back: the contents are right."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = super().on_run(binding, feeds)
        for name, storage in binding.mutable.items():
            storage.array()[...] = binding.private[name]
        return outputs


class OffByOne(Sound):
    """Writes one row further than it should, where there is room."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            binding.moved(feeds, lambda start, length, capacity: start + (start >= 0 and start + length < capacity))
        )


class ZeroFills(Sound):
    """Clears the rows behind those that it writes."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = binding.inner.run(feeds)
        _, values, position = binding.node.input
        binding.cache[..., int(feeds[position].array()) + feeds[values].shape[-2] :, :] = 0
        return outputs


class CanonicalNaNs(Sound):
    """Moves floats through arithmetic, which gives every NaN the same payload."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        name = binding.node.input[1]
        array = feeds[name].array().copy()
        if array.dtype.kind == "f":
            array[np.isnan(array)] = np.nan
        return binding.inner.run({**feeds, name: binding.elsewhere(feeds[name], array)})


class NotAtomic(Sound):
    """Writes the rows of the batch one by one, and finds out in the middle that one does not fit."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        _, values, position = (feeds[name].array() if name in feeds else None for name in binding.node.input)
        try:
            return binding.inner.run(feeds)
        except Rejected:
            if values is not None and position is not None and position.ndim == 1:
                for row, start in enumerate(position.tolist()):
                    if not 0 <= start <= binding.cache.shape[-2] - values.shape[-2]:
                        break
                    binding.cache[row, start : start + values.shape[-2]] = values[row]
            raise


class ClampsOverflow(Sound):
    """Moves what does not fit to where it fits, as XLA's dynamic_update_slice does."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            binding.moved(feeds, lambda start, length, capacity: min(start, max(capacity - length, 0)))
        )


class WrapsNegative(Sound):
    """Takes negative positions from the end, as NumPy does."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            binding.moved(feeds, lambda start, _, capacity: start + capacity if -capacity <= start < 0 else start)
        )


class TruncatesPositions(Sound):
    """Keeps positions in 32 bits."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(binding.moved(feeds, lambda start, *_: (start + 2**31) % 2**32 - 2**31))


class WritesTooFar(Sound):
    """Clears eight bytes behind the cache after each update, as a kernel does that writes whole vectors."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = binding.inner.run(feeds)
        for storage in binding.mutable.values():
            ctypes.memset(storage.address + storage.nbytes, 0, 8)
        return outputs


class Inserts(Sound):
    """Takes the capacity for the valid length, and so moves the rows behind the position up to make room."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        before = binding.cache.copy()
        outputs = binding.inner.run(feeds)
        _, values, position = binding.node.input
        start, length = int(feeds[position].array()), feeds[values].shape[-2]
        binding.cache[..., start + length :, :] = before[..., start : before.shape[-2] - length, :]
        return outputs


class Appends(Sound):
    """Counts the rows that it has written, and writes behind them, whatever the position says."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        count = int(binding.private.get("count", np.array(0)))
        outputs = binding.inner.run(binding.moved(feeds, lambda *_: count))
        binding.private["count"] = np.array(count + feeds[binding.node.input[1]].shape[-2])
        return outputs


class StaleSnapshot(Sound):
    """Keeps a copy of the cache from run to run, and writes it back before each update."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        for name, storage in binding.mutable.items():
            storage.array()[...] = binding.private.get(name, storage.array())
        outputs = binding.inner.run(feeds)
        binding.private.update({name: storage.array().copy() for name, storage in binding.mutable.items()})
        return outputs


class RemembersOperands(Sound):
    """Reads values and position only when it sees their address for the first time."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        known = {f"at {storage.address}": storage.array().copy() for storage in feeds.values()}
        binding.private.update({**known, **binding.private})
        return binding.inner.run(
            {
                name: binding.elsewhere(storage, binding.private[f"at {storage.address}"])
                for name, storage in feeds.items()
            }
        )


class FullSizeIgnoresStart(Sound):
    """Copies values as large as the cache over all of it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        _, values, position = binding.node.input
        if values in feeds and feeds[values].shape == binding.cache.shape:
            feeds = {**feeds, position: binding.elsewhere(feeds[position], np.zeros_like(feeds[position].array()))}
        return binding.inner.run(feeds)


class ConvertsThroughDouble(Sound):
    """Moves integers as doubles, which have 53 bits for them."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        name = binding.node.input[1]
        array = feeds[name].array()
        if array.dtype == np.int64:
            rounded = np.clip(array.astype(np.float64), -(2.0**63), 2.0**63 - 1024).astype(np.int64)
            feeds = {**feeds, name: binding.elsewhere(feeds[name], rounded)}
        return binding.inner.run(feeds)


class OffsetsIn32Bits(Sound):
    """Computes the byte offset of a row in 32 bits."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if binding.cache.nbytes < 2**32:
            return binding.inner.run(feeds)
        _, values, position = binding.node.input
        rows = binding.cache.reshape(-1, binding.cache.shape[-1])
        start = int(feeds[position].array()) * rows.strides[0] % 2**32 // rows.strides[0]
        rows[start : start + feeds[values].shape[-2]] = feeds[values].array()
        return {binding.node.output[0]: OutputValue.of(binding.cache)}


class IgnoresAxis(Sound):
    """Updates the last axis but one of every cache."""

    def on_load(self, model: ModelProto) -> ModelProto:
        return without_attribute(model, "axis")


class IgnoresBatchAxis(Sound):
    """Writes every row of the batch at the first of the positions."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        position = binding.node.input[2]
        if position in feeds and feeds[position].shape:
            starts = feeds[position].array()
            feeds = {**feeds, position: binding.elsewhere(feeds[position], np.full_like(starts, starts[0]))}
        return binding.inner.run(feeds)


class WrapsLinear(Sound):
    """Goes on at the first row whenever the last one is written, as if every update were circular."""

    def on_load(self, model: ModelProto) -> ModelProto:
        without_attribute(model, "mode")
        for node in model.graph.node:
            if node.op_type == "CacheUpdate":
                node.attribute.add(name="mode", type=3, s=b"circular")
        return model


class OverflowingCheck(Sound):
    """Adds position and length in 64 bits, finds the sum negative, and so less than the capacity."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(binding.moved(feeds, lambda start, length, _: 0 if start + length >= 2**63 else start))


class ChecksLongestAxis(Sound):
    """Takes the longest axis for the one that is updated, but only when it checks."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected:
            _, values, position = binding.node.input
            axis = next((attribute.i for attribute in binding.node.attribute if attribute.name == "axis"), -2)
            start, length = int(feeds[position].array()), feeds[values].shape[axis]
            if 0 <= start <= max(binding.cache.shape) - length:
                return {binding.node.output[0]: OutputValue.of(binding.cache)}
            raise


class SkipsBadRows(Sound):
    """Writes the rows of the batch that fit, and leaves the others alone."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        _, values, position = (feeds[name].array() if name in feeds else None for name in binding.node.input)
        try:
            return binding.inner.run(feeds)
        except Rejected:
            if values is None or position is None or position.ndim != 1:
                raise
        length = values.shape[-2]
        for row, start in enumerate(position.tolist()):
            if 0 <= start <= binding.cache.shape[-2] - length:
                binding.cache[row, start : start + length] = values[row]
        return {binding.node.output[0]: OutputValue.of(binding.cache)}


class Grows(Sound):
    """Answers an overflow with a cache of twice the capacity."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected as refusal:
            if refusal.requirement != "MC-DENSE-003":
                raise
        _, values, position = binding.node.input
        start, length = int(feeds[position].array()), feeds[values].shape[-2]
        grown = np.concatenate([binding.cache] * 2, axis=-2)
        grown[..., start : start + length, :] = feeds[values].array()
        return {binding.node.output[0]: OutputValue.of(grown)}


class RefusesNoRows(Sound):
    """Takes an update without rows for a mistake."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if 0 in feeds[binding.node.input[1]].shape:
            raise Rejected("run", None, "nothing to write")
        return binding.inner.run(feeds)


class StopsAfterRefusal(Sound):
    """Marks a binding as broken once a run of it was refused."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if binding.has_failed:
            raise Rejected("run", None, "a run of this binding has failed before")
        return binding.inner.run(feeds)


def without_attribute(model: ModelProto, name: str) -> ModelProto:
    """The model, whose updates lose an attribute."""
    for node in model.graph.node:
        kept = [attribute for attribute in node.attribute if attribute.name != name or node.op_type != "CacheUpdate"]
        if len(kept) < len(node.attribute):
            copies = [type(attribute).FromString(attribute.SerializeToString()) for attribute in kept]
            del node.attribute[:]
            node.attribute.extend(copies)
    return model
