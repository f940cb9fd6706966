"""Storages in messages, and what a host says of them held against the memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mutcache_conformance.memory import PAGE, MemoryFile, Placement
from mutcache_conformance.protocol import Message, ProtocolError


def form_of(place: Placement) -> Message:
    """A storage as messages describe it. Sizes in bytes are decimal strings: not every JSON reader has 64 bits."""
    storage = place.storage
    return {
        "file": place.file.name,
        "offset": str(place.offset),
        "nbytes": str(place.nbytes),
        "dtype": storage.dtype,
        "shape": list(storage.shape),
        "strides": [str(stride) for stride in place.strides],
        "device": "cpu",
        "alignment": place.alignment,
        "writable": storage.writable,
        "origin": storage.origin,
    }


def forms_of(places: Mapping[str, Placement]) -> dict[str, Message]:
    """Storages by value name as messages describe them."""
    return {value: form_of(place) for value, place in places.items()}


def files_of(places: Iterable[Placement]) -> list[MemoryFile]:
    """The files that storages lie in, each once."""
    return list({place.file.name: place.file for place in places}.values())


def check_mapping(
    places: Mapping[str, Placement], addresses: Mapping[str, int], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Hold the addresses that a host gives against the files: one mapping each, at the beginning of a page.

    Args:
        places: storages by value name.
        addresses: where each is said to be.
        known: where files are mapped that it has told of already, by their names.

    Returns:
        Where each file is mapped, by its name.

    Raises:
        ProtocolError: the storages do not lie where the host says.
    """
    if addresses.keys() != places.keys():
        raise ProtocolError(f"bind was answered with addresses of {sorted(addresses)}, not of {sorted(places)}")
    bases = dict(known or {})
    for value, place in places.items():
        base = addresses[value] - place.offset
        if base % PAGE or base != bases.setdefault(place.file.name, base):
            raise ProtocolError(
                f"value {value!r} cannot be at address {addresses[value]:#x}: it is at byte {place.offset} of a file, "
                "which is mapped once, in whole pages"
            )
    return bases
