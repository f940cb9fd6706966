// Loads and stores of what may be aligned to less than its size.
#pragma once

#include "numbers.cuh"

// What a record says is at an address: in device memory, so that the compiler may use its instructions for that.
template <class Word>
FUNCTION Word* at_address(u64 address) {
    Word* found = (Word*)address;
    __builtin_assume(__isGlobal(found));
    return found;
}

// start + index * stride: one instruction, where the compiler would widen the stride first.
FUNCTION u64 offset_by(u64 start, u32 index, u32 stride) {
#ifdef __CUDA_ARCH__
    u64 found;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(found) : "r"(index), "r"(stride), "l"(start));
    return found;
#else
    return start + (u64)index * stride;
#endif
}

template <class Word>
FUNCTION Word load(const u8* at) {
    return *(const Word*)at;
}

template <class Word>
FUNCTION void store(u8* at, Word word) {
    *(Word*)at = word;
}

// Words, little-endian, from an address that is a multiple of `unit`.
template <int WORDS>
FUNCTION void load_words(const u8* at, u32 unit, u32 (&words)[WORDS]) {
    if (WORDS == 4 && unit >= 16) {
        const uint4 all = load<uint4>(at);
        words[0] = all.x, words[1 % WORDS] = all.y, words[2 % WORDS] = all.z, words[3 % WORDS] = all.w;
    } else if (WORDS == 2 && unit >= 8) {
        const u64 both = load<u64>(at);
        words[0] = (u32)both, words[1 % WORDS] = (u32)(both >> 32);
    } else {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const u8* piece = at + 4 * i;
            if (unit >= 4) {
                words[i] = load<u32>(piece);
            } else if (unit >= 2) {
                words[i] = load<u16>(piece) | (u32)load<u16>(piece + 2) << 16;
            } else {
                words[i] = piece[0] | (u32)piece[1] << 8 | (u32)piece[2] << 16 | (u32)piece[3] << 24;
            }
        }
    }
}

template <int WORDS>
FUNCTION void store_words(u8* at, u32 unit, const u32 (&words)[WORDS]) {
    if (WORDS == 4 && unit >= 16) {
        store<uint4>(at, make_uint4(words[0], words[1 % WORDS], words[2 % WORDS], words[3 % WORDS]));
    } else if (WORDS == 2 && unit >= 8) {
        store<u64>(at, (u64)words[1 % WORDS] << 32 | words[0]);
    } else {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            u8* piece = at + 4 * i;
            if (unit >= 4) {
                store<u32>(piece, words[i]);
            } else if (unit >= 2) {
                store<u16>(piece, (u16)words[i]);
                store<u16>(piece + 2, (u16)(words[i] >> 16));
            } else {
                for (int j = 0; j < 4; j++) piece[j] = (u8)(words[i] >> (8 * j));
            }
        }
    }
}

// A scale, a correction or an element.
FUNCTION u32 load_term(const u8* at, u8 type, bool is_aligned) {
    const u32 size = size_of(type);
    if (size == 1) return at[0];
    if (is_aligned) return size == 2 ? load<u16>(at) : load<u32>(at);
    const u32 low = at[0] | (u32)at[1] << 8;
    return size == 2 ? low : low | (u32)at[2] << 16 | (u32)at[3] << 24;
}

FUNCTION void store_term(u8* at, u32 bits, u8 type, bool is_aligned) {
    const u32 size = size_of(type);
    if (size == 1) {
        at[0] = (u8)bits;
    } else if (is_aligned) {
        if (size == 2) {
            store<u16>(at, (u16)bits);
        } else {
            store<u32>(at, bits);
        }
    } else {
        at[0] = (u8)bits;
        at[1] = (u8)(bits >> 8);
        if (size == 4) {
            at[2] = (u8)(bits >> 16);
            at[3] = (u8)(bits >> 24);
        }
    }
}

// One element, at any address: arrays and identity pages need not be aligned to their type.
FUNCTION float load_element(const u8* at, u8 type) {
    return from_bits(load_term(at, type, (u64)at % size_of(type) == 0), type);
}

FUNCTION void store_element(u8* at, float x, u8 type) {
    const u32 bits = type == F32 ? bits_of(x) : type == F16 ? to_f16(x) : to_bf16(x);
    store_term(at, bits, type, (u64)at % size_of(type) == 0);
}

// VECTOR elements from an address that is a multiple of 16.
FUNCTION void load_vector(const u8* at, u8 type, float (&x)[VECTOR]) {
    if (type == F32) {
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            const uint4 part = load<uint4>(at + 4 * i);
            x[i] = float_of(part.x), x[i + 1] = float_of(part.y), x[i + 2] = float_of(part.z), x[i + 3] = float_of(part.w);
        }
        return;
    }
    u32 words[VECTOR / 2];
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i += 4) {
        const uint4 part = load<uint4>(at + 4 * i);
        words[i] = part.x, words[i + 1] = part.y, words[i + 2] = part.z, words[i + 3] = part.w;
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        const u32 word = words[i / 2];
        x[i] = type == F16 ? from_f16((u16)(word >> (16 * (i % 2)))) : float_of(i % 2 ? word & 0xFFFF0000u : word << 16);
    }
}

FUNCTION void store_vector(u8* at, const float (&x)[VECTOR], u8 type) {
    const int words = VECTOR / 2;
    if (type == F32) {
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            store<uint4>(at + 4 * i, make_uint4(bits_of(x[i]), bits_of(x[i + 1]), bits_of(x[i + 2]), bits_of(x[i + 3])));
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < words; i += 4) {
        u32 pairs[4];
#pragma unroll
        for (int j = 0; j < 4; j++) pairs[j] = to_pair(x[2 * (i + j)], x[2 * (i + j) + 1], type);
        store<uint4>(at + 4 * i, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
    }
}
