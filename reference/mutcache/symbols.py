"""Symbolic dimensions: which are known to be equal, which sizes they are known to have, and why."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mutcache.model import Dim


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of the graph number ``scope``: each graph, and each call of a function, has symbols of its own."""

    name: str
    scope: int = 0

    def __str__(self) -> str:
        return self.name


#: One dimension: a size, a symbol, or None when nothing is known.
Size = int | Symbol | None


class Symbols:
    """What equations between dimensions say."""

    def __init__(self) -> None:
        self._parent: dict[Symbol, Symbol] = {}
        self._size: dict[Symbol, int] = {}
        self._equations: dict[Symbol, list[tuple[int | Symbol, str]]] = {}
        self._spelling: dict[tuple[Symbol, int], str] = {}

    def _find(self, symbol: Symbol) -> Symbol:
        path = []
        while symbol in self._parent:
            path.append(symbol)
            symbol = self._parent[symbol]
        for passed in path:
            self._parent[passed] = symbol
        return symbol

    def resolve(self, dim: Size) -> Size:
        """The size of ``dim`` when it is known, else the symbol that stands for all symbols equal to it."""
        if not isinstance(dim, Symbol):
            return dim
        representative = self._find(dim)
        return self._size.get(representative, representative)

    def unify(self, known: Size, other: Size, reason: str) -> bool:
        """Record that two dimensions are equal; False, and nothing recorded, when they are not."""
        ours, theirs = self.resolve(known), self.resolve(other)
        if ours is None or theirs is None or ours == theirs:
            return True
        if isinstance(theirs, Symbol) and not isinstance(ours, Symbol):
            ours, theirs = theirs, ours
        if not isinstance(ours, Symbol):
            return False
        if isinstance(theirs, Symbol):
            self._parent[theirs] = ours
        else:
            self._size[ours] = theirs
        for one, twin in ((known, other), (other, known)):
            if isinstance(one, Symbol) and twin is not None:
                self._equations.setdefault(one, []).append((twin, reason))
        self._spelling.clear()
        return True

    def reason(self, dim: Size) -> str:
        """Why a symbol has its size, equation by equation, or ""."""
        if not isinstance(dim, Symbol) or not isinstance(self.resolve(dim), int):
            return ""
        came_from: dict[Symbol, str] = {dim: ""}
        pending = deque([dim])
        while pending:
            symbol = pending.popleft()
            for twin, reason in self._equations.get(symbol, ()):
                said = "; ".join(filter(None, (came_from[symbol], f"{symbol} is {twin} since {reason}")))
                if not isinstance(twin, Symbol):
                    return said
                if twin not in came_from:
                    came_from[twin] = said
                    pending.append(twin)
        return ""

    def sizes(self) -> dict[int, dict[str, int]]:
        """For each graph the symbols whose sizes are known."""
        found: dict[int, dict[str, int]] = {}
        for symbol in self._equations:
            size = self.resolve(symbol)
            if isinstance(size, int):
                found.setdefault(symbol.scope, {})[symbol.name] = size
        return found

    def spell(self, dim: Size, scope: int) -> Dim:
        """``dim`` as the graph number ``scope`` can write it: a size, a symbol of its own, or None."""
        if not isinstance(dim, Symbol):
            return dim
        dim = self.resolve(dim)
        if not isinstance(dim, Symbol):
            return dim
        if not self._spelling:
            for symbol in sorted({*self._equations, dim}, key=lambda symbol: symbol.name, reverse=True):
                self._spelling[self._find(symbol), symbol.scope] = symbol.name  # the first by name stays
        return self._spelling.get((dim, scope), dim.name if dim.scope == scope else None)
