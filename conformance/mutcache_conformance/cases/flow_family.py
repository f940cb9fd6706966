"""Families of cases with control flow: models written in roles, named and fed by the nonce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import TensorProto as Stock

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Profile, Req
from mutcache_conformance.case import LOAD, RUN, Case, Storage
from mutcache_conformance.cases.builder import model, tensor
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.flow_words import CACHE_DIMS, LOCAL, cache, flag, rows, scalar
from mutcache_conformance.cases.scene import Phases, Scene
from mutcache_conformance.cases.sketch import DTYPE, LENGTH, SHAPE

#: Scalars fed to a run, by role; of a vector all elements.
Feeds = Mapping[str, int | bool | Sequence[int]]


@dataclass(frozen=True)
class Wrong:
    """A model that must be refused, one change away from the valid one of its family.

    Where ``phases`` let a runtime load it, its first run must be refused.
    """

    what: str
    requirements: tuple[Req, ...]
    title: str
    model: ModelProto
    phases: Phases = LOAD


@dataclass(frozen=True)
class Family:
    """What the cases of a family share. What an input is follows from its role.

    ``cache...`` is a READ_WRITE input, ``other...`` a READ_ONLY one of the same type, ``values...`` are rows,
    ``condition...`` is a BOOL scalar, ``trips...`` and ``position...`` are INT64 scalars, ``stack...`` is a sequence of
    rows and ``positions...`` one of positions.

    Attributes:
        nonce: the nonce.
        name: what the family is called, for its draws.
        inputs: the roles of the graph inputs, separated by spaces.
        runs: what each run of a valid model is fed, beside drawn contents.
        profile: the profile of the cases.
    """

    nonce: int
    name: str
    inputs: str
    runs: tuple[Feeds, ...] = field(default=({"position": 1, "condition": True, "trips": 2},) * 2)
    profile: Profile = Profile.FLOW

    @property
    def draw(self) -> Draw:
        """The draws of the family."""
        return Draw(self.nonce, self.name)

    def model(
        self,
        nodes: Iterable[NodeProto],
        *outputs: ValueInfoProto,
        functions: Iterable[FunctionProto] = (),
        value_info: Iterable[ValueInfoProto] = (),
        initializers: Iterable[TensorProto] = (),
    ) -> ModelProto:
        """A model, its names still roles."""
        inputs = [_input(role) for role in self.inputs.split()]
        made = model(inputs, nodes, outputs, value_info=value_info, initializers=initializers)
        made.functions.extend(functions)
        imported = {opset.domain for opset in made.opset_import}
        for domain, version in ((DOMAIN, DOMAIN_VERSION), (LOCAL, 1)):
            if domain not in imported and (domain != LOCAL or made.functions):
                made.opset_import.add(domain=domain, version=version)
        return made

    def cases(
        self, twin: str, requirements: tuple[Req, ...], title: str, valid: ModelProto, *wrong: Wrong
    ) -> Iterator[Case]:
        """A case of the valid model, and of each wrong one a case with the valid one as its twin."""
        yield self._valid(Scene(), valid, "session").case(twin, requirements, title, profile=self.profile)
        for one in wrong:
            scene = Scene()
            if one.phases == LOAD:
                scene.load(renamed(one.model, self.draw), refused=LOAD)
            else:
                self._valid(scene, one.model, "session", runs=self.runs[:1], refused={0: one.phases})
            self._valid(scene, valid, "other", called="valid")
            yield scene.case(one.what, one.requirements, one.title, twin=twin, profile=self.profile)

    def valid(self, what: str, requirements: tuple[Req, ...], title: str, model: ModelProto) -> Case:
        """A case of a valid model."""
        return next(self.cases(what, requirements, title, model))

    def refused_run(
        self,
        what: str,
        requirements: tuple[Req, ...],
        title: str,
        model: ModelProto,
        feeds: Feeds,
        *,
        twin: str,
    ) -> Case:
        """A case of a valid model with one run more, the second, which is fed what must be refused."""
        first, *others = self.runs
        scene = self._valid(Scene(), model, "session", runs=[first, feeds, *others], refused={1: RUN})
        return scene.case(what, requirements, title, twin=twin, profile=self.profile)

    def _valid(
        self,
        scene: Scene,
        model: ModelProto,
        session: str,
        *,
        called: str = "model",
        runs: Sequence[Feeds] = (),
        refused: Mapping[int, Phases] | None = None,
    ) -> Scene:
        """Load the model, bind its caches, run it with ``runs``, release and unload it."""
        binding = f"{session}_binding"
        scene.load(renamed(model, self.draw), session, called=called).bind(self.mutable(), binding, session=session)
        for number, feeds in enumerate(runs or self.runs):
            phases = (refused or {}).get(number, frozenset())
            scene.run(self.step(feeds, tag=f"_{number + 1}"), binding, session=session, refused=phases)
        return scene.release(binding).unload(session)

    def mutable(self) -> dict[str, Storage]:
        """Storage for the caches."""
        roles = [role for role in self.inputs.split() if role.startswith("cache")]
        return {self.draw.name(role): self.draw.small_integers(role, DTYPE, SHAPE) for role in roles}

    def step(self, feeds: Feeds, *, tag: str) -> dict[str, Storage]:
        """Storage for what a run is fed."""
        roles = [role for role in self.inputs.split() if not role.startswith("cache")]
        return {self.draw.name(role): self._storage(role, feeds, tag) for role in roles}

    def _storage(self, role: str, feeds: Feeds, tag: str) -> Storage:
        name, width = role + tag, SHAPE[1]
        if role.startswith("other"):
            return self.draw.small_integers(name, DTYPE, SHAPE)
        if role.startswith("values"):
            return self.draw.small_integers(name, DTYPE, (LENGTH, width))
        number = feeds[role]
        if role.startswith("stack"):
            assert isinstance(number, int)
            return self.draw.small_integers(name, DTYPE, (number, LENGTH, width))
        if role.startswith("condition"):
            return Storage(name, Stock.BOOL, (), bytes([bool(number)]))
        if isinstance(number, int):
            return Storage(name, Stock.INT64, (), int64(number))
        return Storage(name, Stock.INT64, (len(number),), int64(*number))


def _input(role: str) -> ValueInfoProto:
    if role.startswith("cache"):
        return cache(role, mutable=True)
    if role.startswith("other"):
        return cache(role)
    if role.startswith("values"):
        return rows(role)
    if role.startswith("stack"):
        return tensor(role, DTYPE, ("steps", "new_length", CACHE_DIMS[1]))
    if role.startswith("positions"):
        return tensor(role, Stock.INT64, ("steps",))
    return flag(role) if role.startswith("condition") else scalar(role)


# Changes.


def edited(proto: ModelProto, edit: Callable[[ModelProto], object]) -> ModelProto:
    """A copy of a model, changed by ``edit``."""
    made = ModelProto.FromString(proto.SerializeToString())
    edit(made)
    return made


def body_of(proto: ModelProto, index: int = 0, attribute: int = 0) -> GraphProto:
    """A subgraph of a node of the main graph."""
    return proto.graph.node[index].attribute[attribute].g


# Names.


def renamed(proto: ModelProto, draw: Draw) -> ModelProto:
    """A copy of a model with a drawn name for each value, symbol and function."""
    made = ModelProto.FromString(proto.SerializeToString())
    _rename_graph(made.graph, draw)
    for body in made.functions:
        body.name = draw.name(body.name)
        body.input[:] = map(draw.name, body.input)
        body.output[:] = map(draw.name, body.output)
        _rename_nodes(body.node, draw)
        _rename_values(body.value_info, draw)
    return made


def _rename_graph(proto: GraphProto, draw: Draw) -> None:
    for values in (proto.input, proto.output, proto.value_info):
        _rename_values(values, draw)
    for constant in proto.initializer:
        constant.name = draw.name(constant.name)
    _rename_nodes(proto.node, draw)


def _rename_nodes(nodes: Iterable[NodeProto], draw: Draw) -> None:
    for one in nodes:
        if one.domain == LOCAL:
            one.op_type = draw.name(one.op_type)
        one.input[:] = map(draw.name, one.input)
        one.output[:] = map(draw.name, one.output)
        for attribute in one.attribute:
            if attribute.HasField("g"):
                _rename_graph(attribute.g, draw)


def _rename_values(values: Iterable[ValueInfoProto], draw: Draw) -> None:
    for value in values:
        value.name = draw.name(value.name)
        if value.alias_of:
            value.alias_of = draw.name(value.alias_of)
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = draw.name(dim.dim_param)
