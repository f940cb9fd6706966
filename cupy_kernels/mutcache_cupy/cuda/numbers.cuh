// Conversions between float32 and the narrow float types, on bits: nearest even, subnormal numbers kept.
// The device has instructions for some; what they compute is what the portable code beside them computes.
#pragma once

#include "records.cuh"

#define FUNCTION __device__ __forceinline__

FUNCTION u32 bits_of(float x) { return __float_as_uint(x); }
FUNCTION float float_of(u32 bits) { return __uint_as_float(bits); }
FUNCTION bool is_nan(float x) { return x != x; }

#define F32_NAN 0x7FC00000u
#define F32_INFINITY 0x7F800000u
#define F32_MAX 0x7F7FFFFFu
#define BF16_MAX 0x7F7F0000u

// |x| of a finite type is at most this.
FUNCTION float largest(u8 type) {
    return type == F32 ? float_of(F32_MAX) : type == BF16 ? float_of(BF16_MAX) : type == F16 ? 65504.0f : 448.0f;
}

FUNCTION float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }

FUNCTION float from_f16(u16 half) {
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
#else
    const u32 sign = (u32)(half & 0x8000u) << 16;
    const u32 magnitude = (u32)(half & 0x7FFFu) << 13;
    if (magnitude >= 0x0F800000u) return float_of(sign | magnitude | F32_INFINITY);
    return float_of(sign | bits_of(float_of(magnitude) * float_of(0x77800000u)));  // * 2^112 is exact
#endif
}

// Infinity above the largest finite value. A NaN becomes one, on the device another than on the host.
FUNCTION u16 to_f16(float x) {
#ifdef __CUDA_ARCH__
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    const u32 sign = (bits_of(x) >> 16) & 0x8000u;
    const u32 magnitude = bits_of(x) & 0x7FFFFFFFu;
    if (magnitude > F32_INFINITY) return 0x7E00u;
    if (magnitude >= 0x47800000u) return (u16)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) {  // a sum of which the last place is 2^-24, that of subnormal numbers
        return (u16)(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3F000000u));
    }
    return (u16)(sign | (((magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10)));
#endif
}

FUNCTION float from_bf16(u16 brain) { return float_of((u32)brain << 16); }

FUNCTION u16 to_bf16(float x) {
#ifdef __CUDA_ARCH__
    u16 brain;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain) : "f"(x));
    return brain;
#else
    if (is_nan(x)) return 0x7FC0u;
    const u32 bits = bits_of(x);
    return (u16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// Two elements of a 16-bit type in a word.
FUNCTION u32 to_pair(float low, float high, u8 type) {
#ifdef __CUDA_ARCH__
    u32 pair;
    if (type == F16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    }
    return pair;
#else
    return type == F16 ? (u32)to_f16(high) << 16 | to_f16(low) : (u32)to_bf16(high) << 16 | to_bf16(low);
#endif
}

FUNCTION float from_e4m3(u32 code) {
    const u32 magnitude = code & 0x7Fu;
    const float x = float_of(magnitude << 20) * float_of(0x7B800000u);  // * 2^120 is exact
    return float_of(((code & 0x80u) << 24) | (magnitude == 0x7Fu ? F32_NAN : bits_of(x)));
}

// Saturating at 448; x is no NaN.
FUNCTION u32 to_e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return pair;  // the other element of the pair is 0
#else
    const u32 sign = (bits_of(x) >> 24) & 0x80u;
    const float magnitude = fminf(float_of(bits_of(x) & 0x7FFFFFFFu), 448.0f);
    const u32 bits = bits_of(magnitude);
    // Below 2^-6 the last place is 2^-9, as that of 24576.
    const u32 small = bits_of(magnitude + 24576.0f) & 0xFu;
    const u32 normal = ((bits + 0x7FFFFu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);
    return sign | (magnitude < 0.015625f ? small : normal);
#endif
}

FUNCTION float from_e2m1(u32 code) {
    const float x = float_of((code & 7u) << 22) * float_of(0x7E800000u);  // * 2^126 is exact
    return float_of(((code & 8u) << 28) | bits_of(x));
}

// Saturating at 6; x is no NaN. What is missing to the code is the constant E2M1_BASE.
FUNCTION u32 to_e2m1_raw(float x) {
    const float magnitude = fminf(float_of(bits_of(x) & 0x7FFFFFFFu), 6.0f);
    // The power of two below it, at least 1, of which half is the distance of neighbouring values there ...
    const u32 power = bits_of(fmaxf(magnitude, 1.0f)) & F32_INFINITY;
    // ... and the last place of this sum, so that it counts these distances, rounded.
    const u32 count = bits_of(magnitude + float_of(power + 0x0B400000u)) - power;
    return count + (power >> 22) + ((bits_of(x) >> 28) & 8u);
}
#define E2M1_BASE (0x0B400000u + 254u)

FUNCTION float from_e8m0(u32 code) {
    return float_of(code == 0 ? 0x00400000u : code == 255u ? F32_NAN : code << 23);
}

FUNCTION u32 size_of(u8 type) { return type == F32 ? 4u : type <= BF16 ? 2u : 1u; }

FUNCTION float from_bits(u32 bits, u8 type) {
    switch (type) {
        case F32: return float_of(bits);
        case F16: return from_f16((u16)bits);
        case BF16: return from_bf16((u16)bits);
        case E4M3: return from_e4m3(bits);
        default: return from_e8m0(bits);
    }
}

// Round x, which is no NaN, to a type, not E8M0, saturating. Returns the bits; x becomes what they stand for.
FUNCTION u32 round_to(float& x, u8 type, bool is_e4m3_possible) {
    u32 bits;
    if (type == F16) {
        bits = to_f16(clamp(x, -65504.0f, 65504.0f));
        x = from_f16((u16)bits);
    } else if (type == BF16) {
        bits = to_bf16(clamp(x, -float_of(BF16_MAX), float_of(BF16_MAX)));
        x = from_bf16((u16)bits);
    } else if (is_e4m3_possible && type == E4M3) {
        bits = to_e4m3(x);
        x = from_e4m3(bits);
    } else {
        x = clamp(x, -float_of(F32_MAX), float_of(F32_MAX));
        bits = bits_of(x);
    }
    return bits;
}

FUNCTION u32 nan_of(u8 type) {
    return type == F32 ? F32_NAN : type == F16 ? 0x7E00u : type == BF16 ? 0x7FC0u : type == E4M3 ? 0x7Fu : 0xFFu;
}

// 1 / x for x >= 0, and 0 for 0 or where it would be infinite.
FUNCTION float reciprocal(float x) {
    const float r = 1.0f / x;
    return bits_of(r) == F32_INFINITY ? 0.0f : r;
}
