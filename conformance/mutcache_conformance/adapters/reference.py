"""The adapter of the reference runtime: ``mutcache.Session`` on NumPy storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Final

from mutcache.errors import MutcacheError
from mutcache.executor import Binding, Session
from mutcache.proto import parse
from mutcache.schedule import NODE_ORDER, seed_of
from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostStorage,
    OutputValue,
    Rejected,
)

#: The element types of caches beyond the core.
OPTIONAL_TYPES: Final = (
    "UINT16",
    "INT16",
    "DOUBLE",
    "UINT32",
    "UINT64",
    "COMPLEX64",
    "COMPLEX128",
    "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ",
    "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ",
    "FLOAT8E8M0",
)


@contextlib.contextmanager
def refusals(phase: str = "") -> Iterator[None]:
    """Turn the reference's deliberate errors into refusals. A usage error, which breaks no rule, is one too.

    Args:
        phase: the phase of the operation, if it is not always that of the error.
    """
    try:
        yield
    except MutcacheError as error:
        requirement = error.requirement.value if error.requirement is not None else None
        raise Rejected(phase or error.phase.value, requirement, error.message) from error


def _outputs(values: Mapping[str, Any]) -> dict[str, OutputValue]:
    return {name: OutputValue.of(array) for name, array in values.items()}


class ReferenceBinding(AdapterBinding):
    """A binding of the reference."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Run the binding."""
        with refusals():
            return _outputs(self._binding.run({name: storage.array() for name, storage in feeds.items()}))

    def release(self) -> None:
        """Release the binding."""
        with refusals():
            self._binding.release()


class ReferenceSession(AdapterSession):
    """A session of the reference."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Bind NumPy views of the storage."""
        with refusals():
            return ReferenceBinding(
                self._session.bind(
                    {name: storage.array() for name, storage in mutable.items()},
                    {name: storage.array() for name, storage in outputs.items()},
                )
            )

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Run without a binding."""
        with refusals():
            return _outputs(self._session.run({name: storage.array() for name, storage in feeds.items()}))

    def unload(self) -> None:
        """Close the session."""
        with refusals():
            self._session.close()


class ReferenceAdapter(Adapter):
    """The reference runtime.

    Args:
        options: ``schedule`` is the order in which nodes run, ``node-order`` or ``random:SEED``.

    Raises:
        PlanError: there is no such schedule.
        ValueError: there is no such option.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if unknown := sorted(options.keys() - {"schedule"}):
            raise ValueError(f"the reference has no option {unknown[0]!r}: it has schedule")
        self._schedule = options.get("schedule", NODE_ORDER)
        seed_of(self._schedule)

    def describe(self) -> Description:
        """The installed version, with every fixed-width element type."""
        try:
            version = metadata.version("mutcache")
        except metadata.PackageNotFoundError:
            version = "source tree"
        return Description(
            runtime="mutcache reference",
            runtime_version=version,
            adapter="reference",
            adapter_version=version,
            capabilities=frozenset(f"dtype:{name}" for name in OPTIONAL_TYPES),
            concurrent_runs=True,
        )

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Check and plan the model; storage for its initializers that the reference does not take is refused here."""
        with refusals("load"):
            arrays = {name: storage.array() for name, storage in initializers.items()}
            return ReferenceSession(Session(parse(model), initializers=arrays, schedule=self._schedule))
