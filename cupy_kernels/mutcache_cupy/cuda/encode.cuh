// Encodes rows into pages in place.
#pragma once

#include "codecs.cuh"

// Store the terms of a group.
template <int CODEC>
FUNCTION void store_terms(const Page& page, u32 group, u32 scale, u32 aux) {
    u8* at = at_address<u8>(offset_by(page.payload + page.scale_offset, group, page.scale_stride));
    store_term(at, scale, page.scale_type, page.is_aligned);
    u8* beside = at_address<u8>(offset_by(page.payload + page.aux_offset, group, page.aux_stride));
    if (CODEC == ZERO_POINT) beside[0] = (u8)aux;
    if (CODEC == CORRECTION) store_term(beside, aux, page.aux_type, page.is_aligned);
}

// VECTOR elements, an item: a group lies in neighbouring lanes of a warp, which agree on its terms by shuffles. So lanes
// behind the last item go along, with its elements.
template <int CODEC, int BITS>
FUNCTION void encode_item(const Rows& rows, const Page& page, u32 first, u32 item, const float (&x)[VECTOR]) {
    Encoder<CODEC, BITS> encoder;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) encoder.see(x[i]);
    encoder.join(1u << page.lanes_log2);
    encoder.settle(page);
    if (item >= rows.items) return;
    u32 words[VECTOR * BITS / 32] = {};
#pragma unroll
    for (int i = 0; i < VECTOR; i++) words[i * BITS / 32] += encoder.term(x[i]) << (i * BITS % 32);
#pragma unroll
    for (u32& word : words) word = encoder.word(word);
    const u32 target = page_item(rows, first, item);
    const u32 group = target >> page.lanes_log2;
    const u32 lane = target & ((1u << page.lanes_log2) - 1);
    const u64 start = page.payload + lane * sizeof(words);
    store_words(at_address<u8>(offset_by(start, group, page.code_stride)), page.unit, words);
    if (Encoder<CODEC, BITS>::GROUPED && lane == 0) store_terms<CODEC>(page, group, encoder.scale, encoder.aux);
}

template <int CODEC, int BITS, class Source>
FUNCTION void encode_vectors(const Rows& rows, const Page& page, const Source& source) {
    const u32 first = (u32)first_item(rows);
    for (u32 start = blockIdx.x * blockDim.x; start < rows.items; start += gridDim.x * blockDim.x) {
        const u32 item = start + threadIdx.x;
        float x[VECTOR];
        source.load_item(min(item, rows.items - 1), x);
        encode_item<CODEC, BITS>(rows, page, first, item, x);
    }
}

// A group a thread, for groups of any size and values of any alignment.
template <int CODEC, int BITS, class Source>
FUNCTION void encode_groups(const Rows& rows, const Page& page, const Source& source) {
    const u32 first = (u32)first_item(rows);
    for (u32 item = blockIdx.x * blockDim.x + threadIdx.x; item < rows.items; item += gridDim.x * blockDim.x) {
        const i64 element = (i64)item * page.block;
        Encoder<CODEC, BITS> encoder;
        for (u32 i = 0; i < page.block; i++) encoder.see(source.load_one(element + i));
        encoder.join(1);
        encoder.settle(page);
        const u32 group = page_item(rows, first, item);
        u8* codes = at_address<u8>(offset_by(page.payload, group, page.code_stride));
        for (u32 i = 0; i < page.block; i += 8 / BITS) {
            u32 packed = 0;
            for (u32 j = 0; j < 8 / BITS; j++) packed += encoder.term(source.load_one(element + i + j)) << (j * BITS);
            *codes++ = (u8)encoder.word(packed);
        }
        if (Encoder<CODEC, BITS>::GROUPED) store_terms<CODEC>(page, group, encoder.scale, encoder.aux);
    }
}

// Elements in memory. ELEMENT is their type, or NONE where it is known only at run time.
template <int ELEMENT>
struct Elements {
    const u8* values;
    u8 type;
    FUNCTION explicit Elements(const Rows& rows)
        : values(at_address<const u8>(rows.values)), type(ELEMENT == NONE ? rows.element : (u8)ELEMENT) {}
    FUNCTION void load_item(u32 item, float (&x)[VECTOR]) const {
        load_vector(values + (u64)item * (VECTOR * size_of(type)), type, x);
    }
    FUNCTION float load_one(i64 element) const { return load_element(values + element * size_of(type), type); }
};
