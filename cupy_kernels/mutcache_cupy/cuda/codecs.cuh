// The canonical encoder and decoder of groups: chapter QUANT of the specification, in its order of operations.
// Every operation is one of float32, rounded to nearest even; the compiler is told to fuse none and to flush nothing.
#pragma once

#include "rows.cuh"

template <int BITS>
struct Mask {
    static const u32 VALUE = (1u << BITS) - 1;
};

// Bits of a code as an unsigned integer.
FUNCTION float from_unsigned(u32 code) { return float_of(0x4B000000u | code) - 8388608.0f; }

// A code in two's complement of `bits` bits.
template <int BITS>
FUNCTION float from_signed(u32 code) {
    return float_of(0x4B000000u | (code ^ (1u << (BITS - 1)))) - (8388608.0f + (1 << (BITS - 1)));
}

// The terms of a group as they are stored, and what its codes are made with.
//
// Codes are packed by addition. A term of the sum is the code plus a constant, shifted to its place: the bits of a float
// whose last place is 1, for integers. `offset` takes the constants away, and `flip` makes two's complement of what was
// made positive by adding half of the range.
template <int CODEC, int BITS>
struct Encoder {
    static const bool GROUPED = CODEC >= SYMMETRIC;
    static const bool BY_MAGNITUDE = CODEC == SYMMETRIC || CODEC == SCALED_E4M3 || CODEC == SCALED_E2M1;
    static const bool BY_ROUNDING = CODEC >= STATIC && CODEC <= CORRECTION;
    static const u32 ONES = 0xFFFFFFFFu / Mask<BITS>::VALUE;  // a 1 in the place of each code of a word
    static const u32 HALF = CODEC == SYMMETRIC ? 1u << (BITS - 1) : 0u;
    // The largest code: of symmetric integers, of unsigned ones, or the largest float.
    __device__ static constexpr float top() {
        return CODEC == SYMMETRIC     ? (float)((1 << (BITS - 1)) - 1)
               : CODEC == SCALED_E4M3 ? 448.0f
               : CODEC == SCALED_E2M1 ? 6.0f
                                      : (float)((1 << BITS) - 1);
    }

    u32 magnitude;     // bits of the largest |x|: as integers they order numbers, infinity and NaN as needed
    float low, high;   // extremes of the finite elements; of STATIC the bounds of what is rounded
    float residue;     // the sum of all x * 0: NaN if one is not finite, else a zero
    float factor;      // the reciprocal of the stored scale
    float shift;       // the correction
    u32 offset;        // what all terms of a sum have too much
    u32 scale, aux;    // what is stored
    bool is_dropped;   // all codes are 0

    FUNCTION Encoder() : magnitude(0), low(float_of(F32_INFINITY)), high(-float_of(F32_INFINITY)), residue(0.0f) {}

    FUNCTION void see(float x) {
        if (!GROUPED) return;
        if (BY_MAGNITUDE) {
            magnitude = max(magnitude, bits_of(x) & 0x7FFFFFFFu);
        } else {
            low = fminf(low, x);
            high = fmaxf(high, x);
            residue = __fmaf_rn(x, 0.0f, residue);
        }
    }

    // Extend what was seen to the lanes of the group.
    FUNCTION void join(u32 lanes) {
        if (!GROUPED) return;
        if (!BY_MAGNITUDE && is_nan(residue)) high = float_of(F32_INFINITY);
        for (u32 lane = lanes / 2; lane > 0; lane /= 2) {
            if (BY_MAGNITUDE) {
                magnitude = max(magnitude, __shfl_xor_sync(0xFFFFFFFFu, magnitude, lane));
            } else {
                low = fminf(low, __shfl_xor_sync(0xFFFFFFFFu, low, lane));
                high = fmaxf(high, __shfl_xor_sync(0xFFFFFFFFu, high, lane));
            }
        }
    }

    // Round the scale to its type; from then on only the stored one counts. A scale without a finite reciprocal is 0.
    FUNCTION void take_scale(float exact, u8 type) {
        scale = round_to(exact, type, CODEC == SCALED_E2M1);
        factor = reciprocal(exact);
        if (factor == 0.0f) scale = 0;
    }

    FUNCTION void settle(const Page& page) {
        is_dropped = false;
        aux = 0;
        offset = CODEC == SCALED_E2M1 ? 0u - E2M1_BASE * ONES : BY_ROUNDING ? 0u - (0x4B400000u + HALF) * ONES : 0u;
        offset += HALF * ONES;
        if (CODEC == STATIC) {
            factor = 1.0f / page.scale;
            // clamp(rint(v) + zp, low, high) is rint(clamp(v, low - zp, high - zp)) + zp
            low = (page.is_signed ? -(float)(1 << (BITS - 1)) : 0.0f) - (float)page.zero_point;
            high = low + (float)((1 << BITS) - 1);
            shift = -(float)page.zero_point;
            // Sums take no negative terms: of signed codes half of the range is added, and flipped back.
            const u32 half = page.is_signed ? 1u << (BITS - 1) : 0u;
            offset += ((u32)page.zero_point + half) * ONES;
            aux = half * ONES;
        }
        if (!GROUPED) return;
        if (BY_MAGNITUDE ? magnitude >= F32_INFINITY : high == float_of(F32_INFINITY)) {
            is_dropped = true;
            scale = nan_of(page.scale_type);
            factor = 0.0f;
        } else if (CODEC == CORRECTION) {
            shift = low;
            aux = round_to(shift, page.aux_type, false);
            if (shift == 0.0f) aux = 0;
            take_scale(fmaxf(high - shift, 0.0f) / top(), page.scale_type);
        } else if (CODEC == ZERO_POINT) {
            low = fminf(low, 0.0f);
            take_scale((fmaxf(high, 0.0f) - low) / top(), page.scale_type);
            low *= factor;
            aux = bits_of(clamp(-low, 0.0f, top()) + 12582912.0f) & 0xFFu;
            offset += aux * ONES;
            low = -(float)(i32)aux;
        } else if (CODEC == SYMMETRIC || page.scale_type != E8M0) {
            take_scale(float_of(magnitude) / top(), page.scale_type);
            is_dropped = factor == 0.0f;
        } else {  // by the exponent field, never by a cast
            const i32 exponent = (i32)(magnitude >> 23) - (CODEC == SCALED_E4M3 ? 8 : 2);
            scale = (u32)(exponent < 0 ? 0 : exponent);
            factor = 1.0f / from_e8m0(scale);
        }
    }

    // The code of one element with its constants.
    FUNCTION u32 term(float x) const {
        if (CODEC == CAST) return is_nan(x) ? 0x7Fu : to_e4m3(x);
        if (CODEC == SCALED_E4M3) return to_e4m3(x * factor);
        if (CODEC == SCALED_E2M1) return to_e2m1_raw(x * factor);
        float v = (CODEC == CORRECTION ? x - shift : x) * factor;
        if (CODEC == STATIC) v = is_nan(v) ? shift : clamp(v, low, high);
        if (CODEC == SYMMETRIC) v = clamp(v, -top(), top());
        if (CODEC == CORRECTION) v = clamp(v, 0.0f, top());
        if (CODEC == ZERO_POINT) v = clamp(v, low, low + top());
        return bits_of(v + (12582912.0f + HALF));  // rint(v): the last place of the sum is 1
    }

    // A word of codes from the sum of their terms.
    FUNCTION u32 word(u32 sum) const {
        const u32 flip = CODEC == STATIC ? aux : HALF * ONES;
        return GROUPED && is_dropped ? 0u : (sum + offset) ^ flip;
    }
};

// What the codes of a group stand for.
template <int CODEC, int BITS>
struct Decoder {
    float scale, correction, zero_point;
    float limit;     // of the element type
    bool is_finite;  // all terms
    bool is_safe;    // no value can be beyond the limit, or NaN

    FUNCTION Decoder(const Page& page, u32 group, u8 element) {
        limit = largest(element);
        is_finite = true;
        zero_point = 0.0f;
        correction = 0.0f;
        if (CODEC == STATIC) {
            scale = page.scale;
            zero_point = (float)page.zero_point;
        }
        if (CODEC >= SYMMETRIC) {
            const u8* at = at_address<const u8>(offset_by(page.payload + page.scale_offset, group, page.scale_stride));
            scale = from_bits(load_term(at, page.scale_type, page.is_aligned), page.scale_type);
            is_finite = (bits_of(scale) & F32_INFINITY) != F32_INFINITY;
            const u8* aux = at_address<const u8>(offset_by(page.payload + page.aux_offset, group, page.aux_stride));
            if (CODEC == ZERO_POINT) zero_point = from_unsigned(aux[0]);
            if (CODEC == CORRECTION) {
                correction = from_bits(load_term(aux, page.aux_type, page.is_aligned), page.aux_type);
                is_finite = is_finite && (bits_of(correction) & F32_INFINITY) != F32_INFINITY;
            }
        }
        // No code less its zero point is beyond 512.
        is_safe = CODEC == CAST || (CODEC != SCALED_E4M3 && fabsf(scale) * 512.0f + fabsf(correction) <= limit);
    }

    // The value before it is rounded to the element type.
    FUNCTION float exact(u32 code, bool is_signed) const {
        if (CODEC == CAST) return from_e4m3(code);
        if (CODEC == SCALED_E4M3) return from_e4m3(code) * scale;
        if (CODEC == SCALED_E2M1) return from_e2m1(code) * scale;
        if (CODEC == SYMMETRIC) return from_signed<BITS>(code) * scale;
        if (CODEC == STATIC) return ((is_signed ? from_signed<BITS>(code) : from_unsigned(code)) - zero_point) * scale;
        if (CODEC == ZERO_POINT) return (from_unsigned(code) - zero_point) * scale;
        return from_unsigned(code) * scale + correction;
    }

    FUNCTION float limited(float x) const { return is_finite && !is_nan(x) ? clamp(x, -limit, limit) : x; }

    FUNCTION float value(u32 code, bool is_signed) const {
        const float x = exact(code, is_signed);
        return is_safe ? x : limited(x);
    }
};

// Calls OPERATION<codec, bits>(...) for a page that is encoded; `name` is a function template.
#define DISPATCH(name, page, ...)                                                          \
    switch ((page).codec << 4 | (page).bits) {                                             \
        case CAST << 4 | 8: name<CAST, 8>(__VA_ARGS__); break;                             \
        case STATIC << 4 | 8: name<STATIC, 8>(__VA_ARGS__); break;                         \
        case STATIC << 4 | 4: name<STATIC, 4>(__VA_ARGS__); break;                         \
        case STATIC << 4 | 2: name<STATIC, 2>(__VA_ARGS__); break;                         \
        case SYMMETRIC << 4 | 8: name<SYMMETRIC, 8>(__VA_ARGS__); break;                   \
        case SYMMETRIC << 4 | 4: name<SYMMETRIC, 4>(__VA_ARGS__); break;                   \
        case SYMMETRIC << 4 | 2: name<SYMMETRIC, 2>(__VA_ARGS__); break;                   \
        case ZERO_POINT << 4 | 8: name<ZERO_POINT, 8>(__VA_ARGS__); break;                 \
        case ZERO_POINT << 4 | 4: name<ZERO_POINT, 4>(__VA_ARGS__); break;                 \
        case ZERO_POINT << 4 | 2: name<ZERO_POINT, 2>(__VA_ARGS__); break;                 \
        case CORRECTION << 4 | 8: name<CORRECTION, 8>(__VA_ARGS__); break;                 \
        case CORRECTION << 4 | 4: name<CORRECTION, 4>(__VA_ARGS__); break;                 \
        case CORRECTION << 4 | 2: name<CORRECTION, 2>(__VA_ARGS__); break;                 \
        case SCALED_E4M3 << 4 | 8: name<SCALED_E4M3, 8>(__VA_ARGS__); break;               \
        case SCALED_E2M1 << 4 | 4: name<SCALED_E2M1, 4>(__VA_ARGS__); break;               \
    }
