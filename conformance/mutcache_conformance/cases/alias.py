"""ALIAS: what annotations may say in a model without subgraphs and functions."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import AttributeProto, ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import initializer, node
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.edits import alias_of, entry, more_entries, no_entry, operand, result
from mutcache_conformance.cases.scene import Fault, Program, Scene, family
from mutcache_conformance.cases.sketch import DTYPE, OPERANDS, SHAPE, Sketch, chain, one_cache, two_caches
from mutcache_conformance.cases.update import Update

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
    yield from _absent_operands(nonce)


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
        Fault("alias-001/too-large", (_OUTPUT,), "The node has no output of that index.", entry(1, 0)),
        Fault("alias-001/negative", (_OUTPUT,), "A negative output index.", entry(-1, 0)),
        Fault("alias-002/too-large", (_INPUT,), "The node has no input of that index.", entry(0, 3)),
        Fault("alias-002/negative", (_INPUT,), "A negative input index.", entry(0, -1)),
        Fault("alias-003/same-entry-twice", (_ONE_ENTRY,), "The same entry twice.", more_entries((0, 0))),
        Fault(
            "alias-003/two-inputs",
            (_ONE_ENTRY, _MERGE),
            "An output that aliases two inputs.",
            more_entries((0, 1)),
        ),
        Fault("alias-005/other-input", (_SAME,), "alias_of names the values.", alias_of(output_0=values)),
        Fault(
            "alias-006/unknown",
            (_VISIBLE,),
            "alias_of names no value of the graph.",
            alias_of(output_0=update.draw.name("nowhere")),
        ),
        Fault("alias-007/self", (_CYCLE,), "A value that aliases itself.", alias_of(output_0=updated)),
        Fault("alias-007/own-result", (_CYCLE,), "The cache of an update is its own result.", operand(0, 0, updated)),
        Fault("alias-008/on-an-input", (_ESTABLISHED,), "alias_of on a graph input.", alias_of(input_1=cache)),
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
        Fault("alias-014/cache-as-values", (_ONE_OPERAND,), "The cache is its own values.", operand(0, 1, cache)),
        Fault("alias-015/no-entry", (_CARRIES,), "An update without an alias entry.", no_entry()),
        Fault("alias-015/values", (_CARRIES,), "An update that aliases its values.", entry(0, 1)),
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
            "alias-007/later-name",
            (_CYCLE,),
            "The first result names the second.",
            alias_of(value_info_0=second),
        ),
        Fault(
            "alias-007/two",
            (_CYCLE,),
            "Two values alias each other.",
            alias_of(value_info_0=second, output_0=first),
        ),
        Fault(
            "alias-007/three",
            (_CYCLE, _ESTABLISHED),
            "A cycle of three, the graph input among them.",
            alias_of(input_0=second, output_0=first),
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
            operand(0, 0, second),
        ),
        Fault("alias-011/output", (_STALE,), "The first result, stale at the end, is an output.", stale_output),
        Fault("alias-012/fork", (_FORK, _STALE), "Both updates are of the graph input.", operand(1, 0, cache)),
        Fault("alias-014/same-version", (_ONE_OPERAND,), "The values are the cache itself.", operand(1, 1, first)),
        Fault(
            "alias-014/older-version",
            (_ONE_OPERAND, _STALE),
            "The values are an older name of the cache.",
            operand(1, 1, cache),
        ),
        Fault("alias-015/second-without-entry", (_CARRIES,), "The second update has no alias entry.", no_entry(1)),
    )
    title = "The output names the value it was made of, not the graph input."
    yield _whole("alias-005/chain-names-operand", (_SAME,), title, program.edited(alias_of(output_0=first)))
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
            no_entry(),
        ),
    )
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


def _two_caches(nonce: int) -> Iterator[Case]:
    name = Draw(nonce, "alias pair").name
    cache_a, cache_b = name("cache_a"), name("cache_b")
    yield from family(
        "alias-005/two-caches",
        (_SAME, _MERGE),
        "Two caches, each result with its own.",
        two_caches(nonce, "alias pair").program(1, 4),
        Fault(
            "alias-005/other-cache",
            (_SAME,),
            "A result names the other cache.",
            alias_of(output_0=cache_b),
        ),
        Fault(
            "alias-005/swapped",
            (_SAME,),
            "Each result names the other cache.",
            alias_of(output_0=cache_b, output_1=cache_a),
        ),
        Fault(
            "alias-005/one-cache-twice",
            (_SAME, _FORK),
            "Both updates are of one cache, but their results name two.",
            operand(1, 0, cache_a),
        ),
    )
    other = Sketch(nonce, "values of another", "cache_a", "cache_b").feed("position_a", "values_b", "position_b")
    other.update("cache_a", "cache_b", "position_a", "updated_a")
    other.update("cache_b", "values_b", "position_b", "updated_b")
    yield from family(
        "alias-014/values-are-another-cache",
        (_ONE_OPERAND, _MERGE, Req.MC_PLAN_005),
        "The values are another cache, which is updated after that.",
        other.program(0, 3),
        Fault(
            "alias-013/values-are-another-cache",
            (_MERGE, _ONE_ENTRY),
            "The update says that its result is the storage of both.",
            more_entries((0, 1)),
        ),
    )


def _absent_operands(nonce: int) -> Iterator[Case]:
    unread = one_cache(nonce, "absent output").unread_update(*OPERANDS).node("Neg", ["values"], "echo")
    yield from family(
        "alias-001/present",
        (_OUTPUT,),
        "The entry names an output that nothing reads.",
        unread.output("echo", 2).program(1),
        Fault("alias-001/absent", (_OUTPUT,), "The entry names an output that is left out.", result(0, "")),
    )
    slicing = one_cache(nonce, "absent input").constant("start", 0, 0).constant("stop", 8, 2).constant("step", 1, 2)
    slicing.node("Slice", ["cache", "start", "stop", "", "step"], "view").output("view", 2).update(*OPERANDS)
    yield from family(
        "alias-002/absent-operand",
        (_INPUT,),
        "A node with an operand left out, and without an alias.",
        slicing.program(1),
        Fault("alias-002/absent", (_INPUT,), "The entry names the operand left out.", more_entries((0, 3))),
    )
    split = one_cache(nonce, "two outputs").node("Split", ["cache"], "upper", "lower", axis=0, num_outputs=2)
    yield from family(
        "alias-004/split",
        (_ONE_OUTPUT,),
        "A node with two outputs, and without an alias.",
        split.output("upper", 2).output("lower", 2).update(*OPERANDS).program(5),
        Fault(
            "alias-004/both-outputs",
            (_ONE_OUTPUT, _GRAPH_OUTPUT, _FORK),
            "Both alias its input.",
            more_entries((0, 0), (1, 0)),
        ),
    )
