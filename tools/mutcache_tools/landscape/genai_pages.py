"""A decoder for GenAI's engine, whose caches are pools of blocks that requests share, and what happens at their end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper, parser

_VOCABULARY, _WIDTH = 64, 8
#: Rows of a block, and blocks of the pool.
BLOCK, BLOCKS = 4, 4
#: Tokens of each request's prompt, and those that it generates: two requests fill the pool.
PROMPT, GENERATED, REQUESTS = 6, 3, 3
#: How often the engine is asked to go on.
_TURNS: Final = 12

_POOL: Final = f"float[blocks,{BLOCK},1,{_WIDTH}]"
#: Each token of the flat batch finds its request by the ends of these, and its block and slot by the request's table.
_MODEL: Final = f"""<ir_version: 11, opset_import: ["": 24]>
decoder (int64[n] input_ids, int32[e] cumulative_sequence_lengths, int32[b] past_sequence_lengths,
         int32[b,pages] block_table, {_POOL} past_key_0, {_POOL} past_value_0)
=> (float[n,{_VOCABULARY}] logits, {_POOL} present_key_0, {_POOL} present_value_0)
<int64 zero = {{0}}, int64 one = {{1}}, int64 block = {{{BLOCK}}}, int64[1] second = {{1}},
 int64[1] last = {{9223372036854775807}}>
{{
    embedded = Gather(table, input_ids)
    keys = Unsqueeze(embedded, second)
    values = Neg(keys)
    length = Size(input_ids)
    index = Range(zero, length, one)
    bounds = Cast<to=7>(cumulative_sequence_lengths)
    past = Cast<to=7>(past_sequence_lengths)
    tables = Cast<to=7>(block_table)
    ends = Slice(bounds, second, last)
    column = Unsqueeze(index, second)
    is_behind = GreaterOrEqual(column, ends)
    behind = Cast<to=7>(is_behind)
    request = ReduceSum<keepdims=0>(behind, second)
    start = Gather(bounds, request)
    before = Gather(past, request)
    offset = Sub(index, start)
    position = Add(offset, before)
    page = Div(position, block)
    slot = Mod(position, block)
    request_column = Unsqueeze(request, second)
    page_column = Unsqueeze(page, second)
    entry = Concat<axis=1>(request_column, page_column)
    number = GatherND(tables, entry)
    number_column = Unsqueeze(number, second)
    slot_column = Unsqueeze(slot, second)
    place = Concat<axis=1>(number_column, slot_column)
    present_key_0 = ScatterND(past_key_0, place, keys)
    present_value_0 = ScatterND(past_value_0, place, values)
    logits = Gather(predictions, input_ids)
}}"""


def write_paged_decoder(folder: Path, configuration: dict[str, Any], *, blocks: int = BLOCKS) -> Path:
    """Write the decoder; ``configuration`` is that of an ordinary decoder of one layer, which the pool is added to."""
    model = parser.parse_model(_MODEL)
    tokens = np.arange(_VOCABULARY)
    table = np.repeat(tokens[:, None] + 1, _WIDTH, axis=1).astype(np.float32)
    predictions = 10 * np.eye(_VOCABULARY, dtype=np.float32)[(tokens + 1) % (_VOCABULARY - 1)]
    tensors = {"table": table, "predictions": predictions}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    onnx.save(model, folder / "model.onnx")
    inputs = configuration["model"]["decoder"]["inputs"]
    del inputs["attention_mask"]
    inputs |= {name: name for name in ("cumulative_sequence_lengths", "past_sequence_lengths", "block_table")}
    configuration["search"].pop("past_present_share_buffer")
    configuration["engine"] = {
        "dynamic_batching": {"block_size": BLOCK, "num_blocks": blocks, "max_batch_size": REQUESTS + 1}
    }
    (folder / "genai_config.json").write_text(json.dumps(configuration), encoding="utf-8")
    return folder


def exhaust(folder: Path) -> dict[str, Any]:
    """Begin more requests than the pool has blocks for; later close one that is done. What did the engine say?"""
    import onnxruntime_genai

    engine = onnxruntime_genai.Engine(onnxruntime_genai.Model(str(folder)))
    buffer = engine.create_event_buffer(32)
    requests = []
    for number in range(REQUESTS):
        request = engine.create_request()
        options = onnxruntime_genai.TurnOptions(request)
        options.set_max_generated_tokens(GENERATED)
        request.begin_turn(np.array([3 + 10 * number, *range(4, 3 + PROMPT)], np.int32), options)
        requests.append(request)

    def go() -> tuple[list[int], int]:
        tokens, blocked = [0] * REQUESTS, 0
        for _ in range(_TURNS):
            for event in engine.run(buffer):
                if event.request in requests:
                    tokens[requests.index(event.request)] += 1
                blocked += bool(event.flags & onnxruntime_genai.EngineEventFlags.CAPACITY_BLOCKED)
        return tokens, blocked

    try:
        before = go()
        requests[0].close()
        after = go()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"tokens": before[0], "blocked": before[1], "tokens_later": after[0], "blocked_later": after[1]}
