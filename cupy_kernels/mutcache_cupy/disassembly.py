"""What a compiled kernel is made of: registers, spills, widths of memory accesses, instructions of its main loop.

The first come from the compiler's report, the others from the disassembly.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mutcache_cupy.device import DeviceUnavailable
from mutcache_cupy.nvrtc import Compiled

_REPORT: Final = re.compile(
    r"Compiling entry function 'mutcache_(?P<kernel>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)
_SECTION: Final = re.compile(r"^\.text\.mutcache_(\w+):$")
_LABEL: Final = re.compile(r"^(\.L_x_\w+|\$\S+):$")
_INSTRUCTION: Final = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?P<predicate>@!?U?P\d+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>.*);"
)
_TARGET: Final = re.compile(r"`\((\.L_x_\w+)\)")
#: What one shuffle loop runs for: groups of 32 elements lie in 2 lanes, which meet in one turn.
_TURNS: Final = 1


@dataclass(frozen=True)
class Figures:
    """Figures of one kernel.

    Attributes:
        registers: of a thread.
        stack: bytes of its stack frame.
        spills: bytes of spill stores and loads.
        local: loads and stores of local memory in its code.
        wide: loads and stores of 16 bytes.
        loop: the most instructions that its main loop takes for one item of 16 bytes or of VECTOR elements, slow paths
            of divisions and accesses in pieces left out; 0 where there is no one such loop.
    """

    registers: int
    stack: int
    spills: int
    local: int
    wide: tuple[int, int]
    loop: int

    def to_json(self) -> dict[str, Any]:
        """The figures, for the committed table."""
        return asdict(self) | {"wide": list(self.wide)}


@dataclass
class _Block:
    """Instructions that run one after the other; the opcode of one with a predicate begins with @."""

    opcodes: list[str] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)

    def count(self, pattern: str) -> int:
        return sum(re.fullmatch(pattern, opcode) is not None for opcode in self.opcodes)

    def has(self, pattern: str) -> bool:
        return any(re.fullmatch(pattern, opcode.lstrip("@")) for opcode in self.opcodes)


def figures(compiled: Compiled, disassembly: str) -> dict[str, Figures]:
    """The figures of every kernel of a unit, by its name."""
    reports = {match["kernel"]: match for match in _REPORT.finditer(compiled.log)}
    found = {}
    for kernel, lines in _sections(disassembly):
        report, blocks = reports[kernel], _blocks(lines)
        opcodes = [opcode.lstrip("@") for block in blocks for opcode in block.opcodes]

        def count(pattern: str, opcodes: list[str] = opcodes) -> int:
            return sum(re.match(pattern, opcode) is not None for opcode in opcodes)

        found[kernel] = Figures(
            int(report["registers"]),
            int(report["stack"]),
            int(report["stores"]) + int(report["loads"]),
            count(r"(LDL|STL)\b"),
            (count(r"LDG?\.E\.(\w+\.)*128"), count(r"STG?\.E\.(\w+\.)*128")),
            _loop_length(blocks) if kernel.startswith(("dense_", "encode_", "decode_")) else 0,
        )
    return found


def disassemble(cubin: bytes) -> str:
    """The disassembly of a binary.

    Raises:
        DeviceUnavailable: nvdisasm is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unit.cubin"
        path.write_bytes(cubin)
        return subprocess.run([_nvdisasm(), "-c", path], check=True, capture_output=True, text=True).stdout


def _nvdisasm() -> str:
    hint = "nvdisasm is not installed: pip install 'mutcache[kernels-dev]'"
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        raise DeviceUnavailable(hint) from None
    found = find_nvidia_binary_utility("nvdisasm")
    if found is None or not os.access(found, os.X_OK):
        raise DeviceUnavailable(hint)
    return str(found)


def _sections(disassembly: str) -> Iterator[tuple[str, list[str]]]:
    kernel, lines = "", list[str]()
    for line in disassembly.splitlines():
        if match := _SECTION.match(line):
            if kernel:
                yield kernel, lines
            kernel, lines = match[1], []
        elif line.startswith("."):
            if _LABEL.match(line):
                lines.append(line)
            elif line.startswith(".text.") and kernel:
                yield kernel, lines
                kernel = ""
        else:
            lines.append(line)
    if kernel:
        yield kernel, lines


def _blocks(lines: Iterable[str]) -> list[_Block]:
    """The blocks of a kernel with their successors; calls of slow paths count as one instruction."""
    blocks, starts, targets = [_Block()], dict[str, int](), dict[int, list[str]]()
    falls_through = {0: True}

    def begin() -> None:
        blocks.append(_Block())
        falls_through[len(blocks) - 1] = True

    for line in lines:
        if match := _LABEL.match(line):
            if blocks[-1].opcodes:
                begin()
            starts[match[1]] = len(blocks) - 1
        elif match := _INSTRUCTION.match(line):
            opcode, is_conditional = match["opcode"], match["predicate"] is not None
            blocks[-1].opcodes.append("@" * is_conditional + opcode)
            if not opcode.startswith(("BRA", "EXIT", "RET")):
                continue
            target = _TARGET.search(match["rest"])
            # BRA.DIV leaves for lanes that have parted; they never have, at these shuffles.
            if target and opcode != "BRA.DIV":
                targets.setdefault(len(blocks) - 1, []).append(target[1])
            # A branch on a uniform predicate names it behind the opcode.
            is_conditional |= opcode == "BRA.DIV" or re.match(r"\.?U?\s*!?U?P\d", match["rest"].strip()) is not None
            falls_through[len(blocks) - 1] = is_conditional
            begin()
    for index, block in enumerate(blocks):
        block.successors = [starts[name] for name in targets.get(index, ()) if name in starts]
        if falls_through[index] and index + 1 < len(blocks):
            block.successors.append(index + 1)
    return blocks


def _loop_length(blocks: list[_Block]) -> int:
    """Instructions of the longest way through the loop that moves vectors; 0 if there is no such loop."""
    loops = _loops(blocks)
    main = [
        (len(body), header, body)
        for header, body in loops.items()
        if any(blocks[index].has(r"(LD|ST)G?\.E\.(\w+\.)*128") for index in body)
    ]
    if not main:
        return 0
    _, header, body = max(main)
    inner = {
        index
        for other, members in loops.items()
        if other != header and members < body
        for index in members
        if any(blocks[member].has(r"SHFL\..*") for member in members)
    }
    passable = {index for index in body if not _is_slow(blocks[index])}
    longest: dict[int, int] = {}

    def length(index: int) -> int:
        """The longest way from a block to the end of the loop, loops inside it without their way back."""
        if index not in longest:
            longest[index] = -(10**9)  # on the way: a way back to here is none
            rest = [
                0 if successor == header else length(successor)
                for successor in blocks[index].successors
                if successor == header or successor in passable
            ]
            own = len(blocks[index].opcodes) * (_TURNS if index in inner else 1)
            longest[index] = own + max(rest, default=-(10**9))
        return longest[index]

    return max(0, length(header))


def _is_slow(block: _Block) -> bool:
    """Whether a block is off the usual way: a call of a division's slow path, or an access in pieces."""
    return block.has(r"CALL\..*") or any(
        block.count(pattern) > 1 for pattern in (r"STG?\.E\.U8", r"STG?\.E\.U16", r"LDG?\.E\.U8", r"LDG?\.E\.U16")
    )


def _loops(blocks: list[_Block]) -> Mapping[int, set[int]]:
    """The natural loops: the block they start with, and all of their blocks."""
    predecessors: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        for successor in block.successors:
            predecessors.setdefault(successor, []).append(index)
    loops: dict[int, set[int]] = {}
    for index, block in enumerate(blocks):
        for header in block.successors:
            if header > index or not _dominates(blocks, header, index):
                continue
            body, waiting = loops.setdefault(header, {header}), [index]
            while waiting:
                member = waiting.pop()
                if member not in body:
                    body.add(member)
                    waiting += predecessors.get(member, ())
    return loops


def _dominates(blocks: list[_Block], header: int, index: int) -> bool:
    """Whether every way from the start to a block leads through ``header``."""
    seen, waiting = {header}, [0] if header else []
    while waiting:
        member = waiting.pop()
        if member == index:
            return False
        if member not in seen:
            seen.add(member)
            waiting += blocks[member].successors
    return True
