"""Frames: the graphs of a model as a run enters them, the body of a function once for every call.

A scope says what holds whenever its graph runs. A frame adds on behalf of which node: so it knows what a captured
name or a formal input of a function is outside, and which attributes the body of a function refers to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from mutcache.classes import AliasClasses, ModelAliases
from mutcache.model import FunctionKey, Node
from mutcache.projection import bind_attributes, call_attributes
from mutcache.proto.onnx_ml import AttributeProto, NodeProto

#: Functions that call functions make many frames of a small model. Beyond this number calls are not entered.
MAX_FRAMES: Final = 1 << 14
#: Nor are calls inside so many calls; stock onnx rejects them too.
MAX_CALL_DEPTH: Final = 100


class Frame:
    """One graph that takes part in aliasing, as one node of the frame around it enters it.

    Attributes:
        scope: the alias classes of the graph.
        number: its position in the order of :func:`enter`; each frame has symbols of its own.
        outer: the frame of the node, None for the main graph.
        node: the node that holds the graph or calls the function.
        attribute: the attribute that holds the graph; "" for a call.
        key: the function whose body it is, if it is one.
        top: the frame of the main graph or function that holds the graph, itself included.
        depth: the number of calls that lead here.
        attributes: what attributes of the nodes may refer to; None outside of functions.
    """

    def __init__(
        self,
        scope: AliasClasses,
        number: int,
        outer: Frame | None = None,
        node: Node | None = None,
        attribute: str = "",
        key: FunctionKey | None = None,
    ) -> None:
        self.scope = scope
        self.number = number
        self.outer = outer
        self.node = node
        self.attribute = attribute
        self.key = key
        self.top: Frame = self if outer is None or key is not None else outer.top
        self.depth: int = 0 if outer is None else outer.depth + self.is_call
        self.attributes: Mapping[str, AttributeProto] | None = None if outer is None else outer.attributes
        if outer is not None and node is not None and self.is_call:
            self.attributes = call_attributes(scope.graph.proto, outer.bind(node.proto))

    @property
    def is_call(self) -> bool:
        """Whether the graph is the body of a function."""
        return self.key is not None

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """Of a call: formal inputs to the names that the caller passes; omitted ones are absent."""
        if not self.is_call or self.node is None:
            return {}
        formals = (value.name for value in self.scope.graph.inputs)
        return {formal: name for formal, name in zip(formals, self.node.inputs, strict=False) if formal and name}

    def bind(self, proto: NodeProto) -> NodeProto:
        """The node with the attributes that the call which leads here gives it; its subgraphs are left as they are."""
        if self.attributes is None or not any(attribute.ref_attr_name for attribute in proto.attribute):
            return proto
        bound = NodeProto()
        bound.CopyFrom(proto)
        bind_attributes(bound, self.attributes)
        return bound

    def home(self, name: str) -> Frame:
        """The frame whose graph defines ``name``, from here outwards; this one if none does."""
        frame: Frame = self
        while name not in frame.scope.defined:
            if frame.outer is None or frame.is_call:
                return self
            frame = frame.outer
        return frame

    def storage(self, name: str) -> tuple[Frame, str]:
        """The value that owns the storage of ``name``, followed out through subgraphs and calls."""
        frame = self
        while True:
            found = frame.scope.storage(name)
            while frame.scope is not found.scope and frame.outer is not None:
                frame = frame.outer
            name = found.name
            if frame.outer is None or name not in frame.arguments:
                return frame, name
            name, frame = frame.arguments[name], frame.outer


def enter(aliases: ModelAliases) -> tuple[Frame, ...]:
    """The frames of a model, each followed by those inside it, in node order; recursive calls are not entered."""
    frames: list[Frame] = []
    pending: list[tuple[AliasClasses, Frame | None, Node | None, str, FunctionKey | None]] = [
        (aliases.main, None, None, "", None)
    ]
    while pending:
        scope, outer, node, attribute, key = pending.pop()
        frame = Frame(scope, len(frames), outer, node, attribute, key)
        frames.append(frame)
        inside: list[tuple[AliasClasses, Frame | None, Node | None, str, FunctionKey | None]] = []
        for index in scope.constructs:
            node = scope.graph.nodes[index]
            key = scope.calls.get(index)
            if key is not None and not _is_too_much(frame, key, len(frames) + len(pending) + len(inside)):
                inside.append((aliases.functions[key], frame, node, "", key))
            inside += [(body, frame, node, name, None) for name, body in scope.inner.get(index, {}).items()]
        pending += reversed(inside)
    return tuple(frames)


def _is_too_much(frame: Frame, key: FunctionKey, count: int) -> bool:
    if count >= MAX_FRAMES or frame.depth >= MAX_CALL_DEPTH:
        return True
    caller: Frame | None = frame.top
    while caller is not None and caller.key != key:
        caller = caller.outer.top if caller.outer is not None else None
    return caller is not None
