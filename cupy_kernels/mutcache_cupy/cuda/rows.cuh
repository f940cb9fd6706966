// Where items lie, and which transfers are refused.
#pragma once

#include "memory.cuh"

FUNCTION u32 divide(u32 n, const Divisor& by) {
    return by.multiplier == 0 ? n : __umulhi(n, by.multiplier) >> by.shift;
}

// The Status bits of one position. No sum is formed: position + length need not fit into 64 bits (MC-DENSE-005).
FUNCTION i32 judge(i64 position, const Rows& rows) {
    const bool fits = rows.is_circular ? rows.length <= rows.capacity : position <= rows.capacity - rows.length;
    return (position < 0 ? NEGATIVE : 0) | (fits ? 0 : OVERFLOW);
}

// The page of a transfer; false, and a raised flag, if there is none or a position is refused. All threads of a block
// call this, and every block judges all positions of the transfer: where one is refused, nobody writes (MC-DENSE-012).
FUNCTION bool admit(const Rows& rows, Page& page, i32* status) {
    const i64* positions = at_address<const i64>(rows.positions);
    i32 found = 0;
    if (rows.positions != 0) {
        if (rows.starts == 1) {
            found = judge(positions[0], rows);
        } else {
            i32 mine = 0;
            for (u32 i = threadIdx.x; i < rows.starts; i += blockDim.x) mine |= judge(positions[i], rows);
            found = (__syncthreads_or(mine & NEGATIVE) ? NEGATIVE : 0) | (__syncthreads_or(mine & OVERFLOW) ? OVERFLOW : 0);
        }
    }
    const i64 id = rows.page_id != 0 ? *at_address<const i64>(rows.page_id) : 0;
    if (id < 0 || id >= rows.n_pages) {
        found |= NO_PAGE;
    } else {
        page = at_address<const Page>(rows.pages)[id];
        if (page.codec == ABSENT) found |= NO_PAGE;
    }
    if (found != 0 && blockIdx.x == 0 && threadIdx.x == 0) atomicOr(status, found);
    return found == 0;
}

// The first item of the page that a transfer with one position in linear mode touches.
FUNCTION i64 first_item(const Rows& rows) {
    return rows.positions != 0 ? *at_address<const i64>(rows.positions) * rows.row_items : 0;
}

// The item of the page for an item of values, in linear mode with one position. An Index of 32 bits is enough for
// encoded pages, which have fewer items than that; the sum is right even where its parts wrap around.
template <class Index>
FUNCTION Index page_item(const Rows& rows, Index first, u32 item) {
    return first + (Index)item + (Index)divide(item, rows.run) * (Index)rows.page_gap;
}

FUNCTION u64 values_item(const Rows& rows, u32 item) { return item + divide(item, rows.run) * rows.values_gap; }

// The item of the page for an item of values: circular mode, and positions of a batch (MC-DENSE-013, MC-DENSE-014).
FUNCTION i64 page_item_general(const Rows& rows, u32 item) {
    const u32 piece = divide(item, rows.width);
    const u32 row = divide(piece, rows.after);
    const u32 outer = divide(row, rows.rows);
    const u32 within = piece - row * rows.after.divisor;
    const u32 shared = divide(rows.is_batch_outer ? outer : within, rows.step);
    const u32 index = shared - divide(shared, rows.batch) * rows.batch.divisor;
    // Both summands are below 2^63, so the sum is one of 64 bits without sign.
    u64 target = at_address<const u64>(rows.positions)[index] + (row - outer * rows.rows.divisor);
    if (rows.is_circular && target >= (u64)rows.capacity) {
        target = (target | (u64)rows.capacity) >> 32 ? target % (u64)rows.capacity : (u32)target % (u32)rows.capacity;
    }
    const i64 target_piece = (outer * rows.capacity + (i64)target) * rows.after.divisor + within;
    return target_piece * rows.width.divisor + (item - piece * rows.width.divisor);
}

// Bytes in units of one word.
template <class Word>
FUNCTION void copy_items(const Rows& rows, u64 payload, bool to_values) {
    const i64 first = rows.is_general ? 0 : first_item(rows);
    Word* values = at_address<Word>(rows.values);
    Word* page = at_address<Word>(payload);
    for (u32 item = blockIdx.x * blockDim.x + threadIdx.x; item < rows.items; item += gridDim.x * blockDim.x) {
        const i64 target = rows.is_general ? page_item_general(rows, item) : page_item(rows, first, item);
        if (to_values) {
            values[values_item(rows, item)] = page[target];
        } else {
            page[target] = values[item];
        }
    }
}

template <int COUNT>
struct Vectors {
    uint4 part[COUNT];
};

// Copies of rows, both ways.
FUNCTION void copy_rows(const Rows& rows, u64 payload, bool to_values) {
    switch (rows.unit) {
        case 64: copy_items<Vectors<4>>(rows, payload, to_values); break;
        case 32: copy_items<Vectors<2>>(rows, payload, to_values); break;
        case 16: copy_items<uint4>(rows, payload, to_values); break;
        case 8: copy_items<u64>(rows, payload, to_values); break;
        case 4: copy_items<u32>(rows, payload, to_values); break;
        case 2: copy_items<u16>(rows, payload, to_values); break;
        default: copy_items<u8>(rows, payload, to_values);
    }
}
