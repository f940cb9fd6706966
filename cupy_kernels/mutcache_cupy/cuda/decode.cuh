// Decodes rows of pages.
#pragma once

#include "codecs.cuh"

template <int CODEC, int BITS>
FUNCTION void decode_vector(const Page& page, u32 item, u8 element, float (&x)[VECTOR]) {
    const u32 group = item >> page.lanes_log2;
    const u32 lane = item & ((1u << page.lanes_log2) - 1);
    const Decoder<CODEC, BITS> decoder(page, group, element);
    u32 words[VECTOR * BITS / 32];
    load_words(at_address<const u8>(offset_by(page.payload + lane * sizeof(words), group, page.code_stride)), page.unit, words);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        x[i] = decoder.exact((words[i * BITS / 32] >> (i * BITS % 32)) & Mask<BITS>::VALUE, page.is_signed);
    }
    if (!decoder.is_safe) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) x[i] = decoder.limited(x[i]);
    }
}

// The code of one element of a group.
template <int BITS>
FUNCTION u32 load_code(const Page& page, u32 group, u32 index) {
    const u8 byte = (at_address<const u8>(page.payload))[(u64)group * page.code_stride + index * BITS / 8];
    return (u32)byte >> (index * BITS % 8) & Mask<BITS>::VALUE;
}

template <int CODEC, int BITS, int ELEMENT>
FUNCTION void decode_vectors(const Rows& rows, const Page& page) {
    const u8 element = ELEMENT == NONE ? rows.element : (u8)ELEMENT;
    const u32 first = (u32)first_item(rows);
    for (u32 item = blockIdx.x * blockDim.x + threadIdx.x; item < rows.items; item += gridDim.x * blockDim.x) {
        float x[VECTOR];
        decode_vector<CODEC, BITS>(page, page_item(rows, first, item), element, x);
        store_vector(at_address<u8>(rows.values) + values_item(rows, item) * (VECTOR * size_of(element)), x, element);
    }
}

template <int CODEC, int BITS, int ELEMENT>
FUNCTION void decode_groups(const Rows& rows, const Page& page) {
    const u8 element = rows.element;
    const u32 first = (u32)first_item(rows);
    for (u32 item = blockIdx.x * blockDim.x + threadIdx.x; item < rows.items; item += gridDim.x * blockDim.x) {
        const u32 group = page_item(rows, first, item);
        const Decoder<CODEC, BITS> decoder(page, group, element);
        u8* out = at_address<u8>(rows.values) + values_item(rows, item) * page.block * size_of(element);
        for (u32 i = 0; i < page.block; i++) {
            const float x = decoder.value(load_code<BITS>(page, group, i), page.is_signed);
            store_element(out + i * size_of(element), x, element);
        }
    }
}
