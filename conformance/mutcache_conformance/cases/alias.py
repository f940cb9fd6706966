"""ALIAS: what annotations may say in a model without subgraphs and functions, and in which order nodes may stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import AttributeProto, ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import aliased, initializer, node, tensor
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.scene import Fault, Program, Scene, family
from mutcache_conformance.cases.sketch import DTYPE, OPERANDS, SHAPE, Sketch, chain, one_cache, two_caches
from mutcache_conformance.cases.update import Update

Edit = Callable[[ModelProto], object]

# The requirements of this area, by their numbers.
_INPUT, _OUTPUT = Req.MC_ALIAS_002, Req.MC_ALIAS_001
_ONE_ENTRY, _ONE_OUTPUT = Req.MC_ALIAS_003, Req.MC_ALIAS_004
_SAME, _VISIBLE, _CYCLE, _ESTABLISHED = Req.MC_ALIAS_005, Req.MC_ALIAS_006, Req.MC_ALIAS_007, Req.MC_ALIAS_008
_GRAPH_OUTPUT, _ROOT, _STALE, _FORK = Req.MC_ALIAS_009, Req.MC_ALIAS_010, Req.MC_ALIAS_011, Req.MC_ALIAS_012
_MERGE, _ONE_OPERAND, _CARRIES = Req.MC_ALIAS_013, Req.MC_ALIAS_014, Req.MC_ALIAS_015


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield from _one_update(nonce)
    yield from _chain(nonce)
    yield from _identity(nonce)
    yield from _two_caches(nonce)
    yield from _readers(nonce)
    yield from _absent_operands(nonce)


# Changes of a model. Nodes, inputs and outputs are counted.


def _entry(output_index: int, input_index: int) -> Edit:
    """Change the first entry of the first node."""

    def edit(model: ModelProto) -> None:
        entry = model.graph.node[0].output_alias[0]
        entry.output_index, entry.input_index = output_index, input_index

    return edit


def _more_entries(*entries: tuple[int, int]) -> Edit:
    return lambda model: [aliased(model.graph.node[0], *entry) for entry in entries]


def _no_entry(number: int = 0) -> Edit:
    return lambda model: model.graph.node[number].ClearField("output_alias")


def _operand(number: int, index: int, name: str) -> Edit:
    def edit(model: ModelProto) -> None:
        model.graph.node[number].input[index] = name

    return edit


def _result(number: int, name: str) -> Edit:
    def edit(model: ModelProto) -> None:
        model.graph.node[number].output[0] = name

    return edit


def _alias_of(**named: str) -> Edit:
    """Set ``alias_of``: of ``input_N``, ``output_N`` or ``value_info_N``."""

    def edit(model: ModelProto) -> None:
        for place, name in named.items():
            field, _, number = place.rpartition("_")
            getattr(model.graph, field)[int(number)].alias_of = name

    return edit


def _whole(what: str, requirements: tuple[Req, ...], title: str, program: Program) -> Case:
    return Scene().whole(program).case(what, requirements, title)


def _one_update(nonce: int) -> Iterator[Case]:
    update = Update(Draw(nonce, "one update"), dtype=DTYPE, shape=SHAPE, static=True)
    cache, values, updated = (update.draw.name(role) for role in ("cache", "values", "updated_cache"))

    content = update.draw.content("cache", DTYPE, SHAPE)

    def default(model: ModelProto) -> None:
        model.graph.initializer.append(initializer(cache, DTYPE, SHAPE, content))
        model.graph.input[0].ClearField("access")

    def constant(model: ModelProto) -> None:
        default(model)
        del model.graph.input[0]

    def sparse_constant(model: ModelProto) -> None:
        sparse = model.graph.sparse_initializer.add(dims=SHAPE)
        sparse.values.CopyFrom(initializer(cache, DTYPE, [1], content[:4]))
        sparse.indices.CopyFrom(initializer("", Stock.INT64, [1], bytes(8)))
        del model.graph.input[0]

    def constant_node(model: ModelProto) -> None:
        made = node("Constant", [], [cache])
        made.attribute.add(name="value", type=AttributeProto.TENSOR).t.CopyFrom(initializer("", DTYPE, SHAPE, content))
        model.graph.node.insert(0, made)
        del model.graph.input[0]

    yield from family(
        "alias-015/one-update",
        (_CARRIES, _OUTPUT, _INPUT, _ONE_ENTRY, _SAME, _VISIBLE, _GRAPH_OUTPUT, _ROOT, _ONE_OPERAND),
        "An update with its alias entry, whose result names the cache.",
        update.program(update.draw.integer("position", 0, 5)),
        Fault("alias-001/too-large", (_OUTPUT,), "The node has no output of that index.", _entry(1, 0)),
        Fault("alias-001/negative", (_OUTPUT,), "A negative output index.", _entry(-1, 0)),
        Fault("alias-002/too-large", (_INPUT,), "The node has no input of that index.", _entry(0, 3)),
        Fault("alias-002/negative", (_INPUT,), "A negative input index.", _entry(0, -1)),
        Fault("alias-003/same-entry-twice", (_ONE_ENTRY,), "The same entry twice.", _more_entries((0, 0))),
        Fault("alias-003/two-inputs", (_ONE_ENTRY,), "An output that aliases two inputs.", _more_entries((0, 1))),
        Fault("alias-005/other-input", (_SAME,), "alias_of names the values.", _alias_of(output_0=values)),
        Fault(
            "alias-006/unknown",
            (_VISIBLE,),
            "alias_of names no value of the graph.",
            _alias_of(output_0=update.draw.name("nowhere")),
        ),
        Fault("alias-007/self", (_CYCLE,), "A value that aliases itself.", _alias_of(output_0=updated)),
        Fault("alias-007/own-result", (_CYCLE,), "The cache of an update is its own result.", _operand(0, 0, updated)),
        Fault("alias-008/on-an-input", (_ESTABLISHED,), "alias_of on a graph input.", _alias_of(input_1=cache)),
        Fault(
            "alias-009/missing",
            (_GRAPH_OUTPUT,),
            "The output does not tell the caller whose storage it is.",
            lambda model: model.graph.output[0].ClearField("alias_of"),
        ),
        Fault(
            "alias-010/read-only-input",
            (_ROOT,),
            "The cache is a READ_ONLY input.",
            lambda model: model.graph.input[0].ClearField("access"),
        ),
        Fault("alias-010/initializer", (_ROOT,), "The cache is an initializer.", constant),
        Fault("alias-010/sparse-initializer", (_ROOT,), "The cache is a sparse initializer.", sparse_constant),
        Fault("alias-010/default", (_ROOT,), "The cache is a READ_ONLY input with a default.", default),
        Fault("alias-010/constant", (_ROOT,), "The cache is the result of a Constant node.", constant_node),
        Fault("alias-014/cache-as-values", (_ONE_OPERAND,), "The cache is its own values.", _operand(0, 1, cache)),
        Fault("alias-015/no-entry", (_CARRIES,), "An update without an alias entry.", _no_entry()),
        Fault("alias-015/values", (_CARRIES,), "An update that aliases its values.", _entry(0, 1)),
    )


def _chain(nonce: int) -> Iterator[Case]:
    program = chain(nonce, "alias chain").program(1, 4)
    name = Draw(nonce, "alias chain").name
    cache, first, second = name("cache"), name("updated_a"), name("updated_b")

    def stale_output(model: ModelProto) -> None:
        model.graph.output.append(model.graph.value_info[0])
        del model.graph.value_info[:]

    twin = "alias-005/chain-names-root"
    yield from family(
        twin,
        (_SAME, _CYCLE, _STALE, _FORK),
        "Both results of a chain name the graph input.",
        program,
        Fault(
            "alias-005/later-name",
            (_SAME, _CYCLE),
            "The first result names the second.",
            _alias_of(value_info_0=second),
        ),
        Fault(
            "alias-007/two",
            (_CYCLE,),
            "Two values alias each other.",
            _alias_of(value_info_0=second, output_0=first),
        ),
        Fault(
            "alias-007/three",
            (_CYCLE, _ESTABLISHED),
            "A cycle of three, the graph input among them.",
            _alias_of(input_0=second, output_0=first),
        ),
        Fault(
            "alias-009/chain",
            (_GRAPH_OUTPUT,),
            "The output of a chain does not tell the caller whose storage it is.",
            lambda model: model.graph.output[0].ClearField("alias_of"),
        ),
        Fault(
            "alias-007/nodes",
            (_CYCLE,),
            "Each of two updates takes the result of the other.",
            _operand(0, 0, second),
        ),
        Fault("alias-011/output", (_STALE,), "The first result, stale at the end, is an output.", stale_output),
        Fault("alias-012/fork", (_FORK, _STALE), "Both updates are of the graph input.", _operand(1, 0, cache)),
        Fault("alias-014/same-version", (_ONE_OPERAND,), "The values are the cache itself.", _operand(1, 1, first)),
        Fault(
            "alias-014/older-version",
            (_ONE_OPERAND, _STALE),
            "The values are an older name of the cache.",
            _operand(1, 1, cache),
        ),
        Fault("alias-015/second-without-entry", (_CARRIES,), "The second update has no alias entry.", _no_entry(1)),
    )
    title = "The output names the value it was made of, not the graph input."
    yield _whole("alias-005/chain-names-operand", (_SAME,), title, program.edited(_alias_of(output_0=first)))
    title = "The value between two updates has no annotation."
    unannotated = program.edited(lambda model: model.graph.ClearField("value_info"))
    yield _whole("alias-005/chain-unannotated", (_SAME,), title, unannotated)


def _identity(nonce: int) -> Iterator[Case]:
    before = one_cache(nonce, "identity before").node("Identity", ["cache"], "named").alias(0, 0)
    before.update("named", "values", "position", "updated", root="cache")
    yield from family(
        "alias-010/identity",
        (_ROOT, _SAME),
        "The update is of another name that Identity with MUST_ALIAS gave the cache.",
        before.program(2),
        Fault(
            "alias-010/copy",
            (_ROOT, _SAME),
            "The same with an Identity that copies: nobody lent that copy.",
            _no_entry(),
        ),
    )
    yield from _two_names(nonce)
    after = one_cache(nonce, "identity after").unread_update(*OPERANDS)
    after.node("Identity", ["updated"], "named").alias(0, 0).cache_output("named", root="cache")
    yield from family(
        "alias-009/identity",
        (_GRAPH_OUTPUT,),
        "The output is another name of the updated cache, and says so.",
        after.program(2),
        Fault(
            "alias-009/identity-missing",
            (_GRAPH_OUTPUT,),
            "It does not say so.",
            lambda model: model.graph.output[0].ClearField("alias_of"),
        ),
    )
    title = "Identity with MUST_ALIAS names the cache once more after the update."
    yield after.case("alias-005/identity", (_SAME, Req.MC_BIND_009), title, [0], [4])


def _two_names(nonce: int) -> Iterator[Case]:
    """What holds for a version holds for each of its names: here ``cache`` and ``named`` are one version."""
    graph = Sketch(nonce, "two names", "cache").feed("values_a", "position_a", "values_b", "position_b")
    graph.node("Identity", ["cache"], "named").alias(0, 0).node("Neg", ["named"], "before").output("before", 2)
    graph.unread_update("cache", "values_a", "position_a", "updated_a")
    graph.node("Identity", ["updated_a"], "renamed").alias(0, 0)
    graph.node("Abs", ["updated_a"], "after_a").output("after_a", 2)
    graph.node("Neg", ["renamed"], "after_b").output("after_b", 2)
    graph.update("renamed", "values_b", "position_b", "updated_b", root="cache")
    name = graph.draw.name
    yield from family(
        "alias-011/two-names",
        (_STALE, _FORK, _ONE_OPERAND, _GRAPH_OUTPUT),
        "Each version of a cache has two names, read before the next update.",
        graph.program(0, 4),
        Fault("alias-011/other-name", (_STALE,), "The other old name is read after it.", _operand(4, 0, name("named"))),
        Fault("alias-012/other-name", (_FORK,), "The other old name is updated, too.", _operand(6, 0, name("named"))),
        Fault("alias-012/stale-name", (_FORK,), "The old name is updated once more.", _operand(6, 0, name("cache"))),
        Fault(
            "alias-014/other-name",
            (_ONE_OPERAND,),
            "The values are the cache, under its other name.",
            _operand(2, 1, name("named")),
        ),
        Fault(
            "alias-007/through-identity",
            (_CYCLE,),
            "The names of a version alias each other.",
            _both_names(name("renamed"), name("updated_a")),
        ),
    )


def _both_names(one: str, other: str) -> Edit:
    """Annotate two intermediate values, each with the name of the other."""

    def edit(model: ModelProto) -> None:
        for name, alias_of in ((one, other), (other, one)):
            model.graph.value_info.append(tensor(name, DTYPE, [None, None], alias_of=alias_of))

    return edit


def _two_caches(nonce: int) -> Iterator[Case]:
    name = Draw(nonce, "alias pair").name
    cache_a, cache_b = name("cache_a"), name("cache_b")
    yield from family(
        "alias-013/two-caches",
        (_MERGE, _SAME),
        "Two caches, each result with its own.",
        two_caches(nonce, "alias pair").program(1, 4),
        Fault(
            "alias-005/other-cache",
            (_SAME, _MERGE),
            "A result names the other cache.",
            _alias_of(output_0=cache_b),
        ),
        Fault(
            "alias-013/swapped",
            (_MERGE, _SAME),
            "Each result names the other cache.",
            _alias_of(output_0=cache_b, output_1=cache_a),
        ),
        Fault(
            "alias-013/one-cache-twice",
            (_MERGE, _SAME, _FORK),
            "Both updates are of one cache, but their results name two.",
            _operand(1, 0, cache_a),
        ),
    )
    other = Sketch(nonce, "values of another", "cache_a", "cache_b").feed("position_a", "values_b", "position_b")
    other.update("cache_a", "cache_b", "position_a", "updated_a")
    other.update("cache_b", "values_b", "position_b", "updated_b")
    title = "The values are another cache, which is updated after that."
    yield other.case("alias-014/values-are-another-cache", (_ONE_OPERAND, Req.MC_PLAN_005), title, [0, 3], [0, 5])


def _readers(nonce: int) -> Iterator[Case]:
    reader = one_cache(nonce, "alias reader").node("Neg", ["cache"], "negated").output("negated", 2).update(*OPERANDS)
    name = reader.draw.name

    def swapped(model: ModelProto) -> None:
        first, second = (type(one).FromString(one.SerializeToString()) for one in model.graph.node)
        model.graph.ClearField("node")
        model.graph.node.extend((second, first))

    yield from family(
        "alias-011/read-before",
        (_STALE, _ESTABLISHED, _ROOT),
        "The cache is read before it is updated.",
        reader.program(3),
        Fault("alias-011/read-after", (_STALE,), "The old name is read after the update.", swapped),
        Fault(
            "alias-011/passed-through",
            (_STALE,),
            "The old name is an output, too.",
            lambda model: model.graph.output.append(model.graph.input[0]),
        ),
        Fault(
            "alias-008/other-producer",
            (_ESTABLISHED,),
            "alias_of on the result of a node without an alias entry.",
            _alias_of(output_0=name("cache")),
        ),
        Fault(
            "alias-010/intermediate",
            (_ROOT, _SAME),
            "The update is of a value that the graph computed.",
            _operand(1, 0, name("negated")),
        ),
    )
    table = one_cache(nonce, "alias table").constant("table", 1, 2, 3).node("Cast", ["table"], "row", to=DTYPE)
    table.output("row", 1).update(*OPERANDS)

    def on_initializer(model: ModelProto) -> None:
        annotated = tensor(table.draw.name("table"), Stock.INT64, [3], alias_of=table.draw.name("cache"))
        model.graph.value_info.append(annotated)

    yield from family(
        "alias-008/initializer-beside",
        (_ESTABLISHED,),
        "An initializer beside the cache.",
        table.program(1),
        Fault("alias-008/on-an-initializer", (_ESTABLISHED,), "alias_of on that initializer.", on_initializer),
    )

    shape = one_cache(nonce, "shape of stale").update(*OPERANDS).node("Shape", ["cache"], "shape")
    shape.node("Size", ["cache"], "size").node("Mul", ["shape", "size"], "product")
    shape.node("Cast", ["product"], "numbers", to=DTYPE).output("numbers", 1)
    yield shape.case("alias-011/shape-of-stale", (_STALE,), "Shape and Size of the old name, after the update.", [3])

    through = one_cache(nonce, "pass through").node("Neg", ["cache"], "negated").output("negated", 2)
    through.cache_output("cache")
    title = "A cache that nothing updates is an output under its own name, and needs no alias_of."
    yield through.case("alias-009/passed-through", (_GRAPH_OUTPUT,), title, [0])


def _absent_operands(nonce: int) -> Iterator[Case]:
    unread = one_cache(nonce, "absent output").unread_update(*OPERANDS).node("Neg", ["values"], "echo")
    yield from family(
        "alias-001/present",
        (_OUTPUT,),
        "The entry names an output that nothing reads.",
        unread.output("echo", 2).program(1),
        Fault("alias-001/absent", (_OUTPUT,), "The entry names an output that is left out.", _result(0, "")),
    )
    slicing = one_cache(nonce, "absent input").constant("start", 0, 0).constant("stop", 8, 2).constant("step", 1, 2)
    slicing.node("Slice", ["cache", "start", "stop", "", "step"], "view").output("view", 2).update(*OPERANDS)
    yield from family(
        "alias-002/absent-operand",
        (_INPUT,),
        "A node with an operand left out, and without an alias.",
        slicing.program(1),
        Fault("alias-002/absent", (_INPUT,), "The entry names the operand left out.", _more_entries((0, 3))),
    )
    split = one_cache(nonce, "two outputs").node("Split", ["cache"], "upper", "lower", axis=0, num_outputs=2)
    yield from family(
        "alias-004/split",
        (_ONE_OUTPUT,),
        "A node with two outputs, and without an alias.",
        split.output("upper", 2).output("lower", 2).update(*OPERANDS).program(5),
        Fault("alias-004/both-outputs", (_ONE_OUTPUT,), "Both alias its input.", _more_entries((0, 0), (1, 0))),
    )
