"""Steps, storages and causes in words, for those who read why a case failed and not how the harness works."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Phase
from mutcache_conformance.case import LOAD, Bind, Case, Finish, Load, PageTable, Release, Run, Start, Step, Unload
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.evidence import StepRecord
from mutcache_conformance.memory import Placement, row_major

#: What is added to a verdict that rests on what the adapter reports of memory.
ON_REPORTED: Final = "on reported evidence"
#: Integer feeds of up to so many elements are told by their values.
_FEW: Final = 8


def title(record: StepRecord) -> str:
    """A step, counted from 1."""
    return f"step {record.index + 1} ({record.operation})"


def a(operation: str) -> str:
    """The operation with its article."""
    return f"{'an' if operation[0] in 'aeiou' else 'a'} {operation}"


def device_of(report: Mapping[str, Any]) -> str:
    """Where the runtime of a report keeps caches."""
    return "cpu" if report["runtime"] is None else str(report["runtime"]["device"])


def on_reported(device: str) -> str:
    """What is added to a verdict that rests on what the adapter reports of memory.

    Args:
        device: where caches are: ``cpu`` where the adapter was asked of memory of its own process.
    """
    return ON_REPORTED if device == "cpu" else f"{ON_REPORTED} (memory of {device})"


def on_whose_word(device: str) -> str:
    """Why evidence is reported."""
    if device == "cpu":
        return "some memory of the runtime cannot be looked into, and what it holds is what the adapter reports"
    return f"caches are in the memory of {device}, and what they hold there is what the adapter reports"


def phases(names: Iterable[Phase]) -> str:
    """Phases as a person tells them apart from outside."""
    told = {"load" if phase in LOAD else phase.value for phase in names}
    return " or ".join(name for name in ("load", "bind", "run") if name in told)


def tensor(dtype: int, shape: Iterable[int]) -> str:
    """An element type and dimensions: ``FLOAT16[2, 8, 4]``."""
    return f"{dtype_name(dtype)}{list(shape)}"


def dtype_name(number: int) -> str:
    """The name of a TensorProto.DataType, or the number that is none."""
    names = {value: name for name, value in TensorProto.DataType.items()}
    return names.get(TensorProto.DataType.ValueType(number), f"type {number}")


def storage(place: Placement) -> str:
    """A storage, and what is out of the ordinary about it."""
    told = place.storage
    odd = []
    if not told.writable:
        odd.append("read-only")
    if told.origin != "caller":
        odd.append(f"holds {told.origin.replace(':', ' ', 1)!r}")
    if told.misalignment:
        odd.append(f"{told.misalignment} bytes off its alignment of {told.alignment}")
    if place.strides != row_major(told.shape, dtype_of(told.dtype).itemsize):
        odd.append(f"strides of {list(place.strides)} bytes")
    if told.within:
        odd.append(f"lies {told.offset} bytes into storage {told.within!r}")
    return tensor(told.dtype, told.shape) + (f" ({', '.join(odd)})" if odd else "")


def request(step: Step, case: Case, places: Mapping[str, Placement], elements: Callable[[Placement], Any]) -> str:
    """What a step sends.

    Args:
        step: the step.
        case: its case.
        places: the storages of the case.
        elements: gives what a storage holds.
    """
    tables = {table.name: table for table in case.tables}
    match step:
        case Load():
            text = f"load of model {step.model!r} ({len(case.models[step.model])} bytes)"
            return text + _values(step.initializers, places, " with initializers ")
        case Bind():
            text = f"bind of session {step.session!r}" + _values(step.mutable, places, " to ", tables=tables)
            return text + _values(step.outputs, places, ", outputs to ")
        case Run() | Start():
            text = f"run of binding {step.binding!r}" if step.binding else f"run of session {step.session!r} unbound"
            times = f", {step.times} times" if isinstance(step, Run) and step.times > 1 else ""
            return text + _values(step.feeds, places, " with ", elements, tables) + times
        case Finish():
            return f"nothing more; run {step.run!r} was waited for"
        case Release():
            return f"release of binding {step.binding!r}"
        case Unload():
            return f"unload of session {step.session!r}"
    return ""


def _values(
    names: Mapping[str, str],
    places: Mapping[str, Placement],
    words: str,
    elements: Callable[[Placement], Any] | None = None,
    tables: Mapping[str, PageTable] | None = None,
) -> str:
    told = []
    for value, name in ((one_line(value, 100), one_line(name, 100)) for value, name in names.items()):
        if tables is not None and name in tables:
            told.append(f"{value} = page table {name!r}, lent first as {table(tables[name])}")
            continue
        place = places.get(name)
        if place is None:  # the script is wrong, which is for others to say
            told.append(f"{value} = storage {name!r}")
            continue
        is_integer = dtype_of(place.storage.dtype).kind in "iu"
        if elements is not None and is_integer and 0 < math.prod(place.storage.shape) <= _FEW:
            told.append(f"{value} = {elements(place).tolist()}")
        else:
            same = "" if name == value else f"storage {name!r}, "
            told.append(f"{value} = {same}{storage(place)}")
    return words + ", ".join(told) if told else ""


def table(lent: PageTable) -> str:
    """A page table that a case lends."""
    budget = "" if lent.budget is None else f", {lent.budget} bytes to allocate"
    return f"{lent.container} of pages {len(lent.pages)}{budget}"


def outputs(told: Mapping[str, Mapping[str, Any]]) -> str:
    """The outputs of a run, as the child tells of them."""
    return ", ".join(f"{one_line(name, 100)} = {_output(output)}" for name, output in told.items())


def _output(told: Mapping[str, Any]) -> str:
    if "container" in told:
        return f"{told['container']} of pages {len(told['pages'])}"
    address = "" if told["address"] is None else f" at address {int(told['address']):#x}"
    return tensor(told["dtype"], told["shape"]) + address


def masked(message: str) -> str:
    """The first line of a message without the names and numbers in it: the same for the same cause in other cases."""
    line = printable(message).partition("\n")[0]
    line = re.sub(r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|\[[^\]]*\]|-?\d+", "...", line)
    return re.sub(r"\.{4,}", "...", line)[:100]


def printable(message: str, limit: int = 1000) -> str:
    """A message of the child, made safe for terminals and bounded; lines stay lines."""
    lines = message[:limit].splitlines()
    text = "\n".join("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line) for line in lines)
    return text + (f" ... ({len(message) - limit} characters more)" if len(message) > limit else "")


def one_line(text: str, limit: int = 4000) -> str:
    """Words from elsewhere, made safe for terminals and bounded, as one line: they can forge no other."""
    return " ".join(printable(text, limit).splitlines())
