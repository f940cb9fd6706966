// CUDA for g++: enough of it to run the kernels of this folder on the CPU, thread by thread, and compare every byte.
// host_runtime.cc runs them. It finds mistakes of arithmetic and layout, and, where the kernels are compiled with checks,
// accesses that a device would refuse or that depend on the order of threads. It sees no inline PTX.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __builtin_assume(condition)

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }

namespace host {

struct Dim3 {
    unsigned x, y, z;
};
struct Here {
    Dim3 thread, block, threads, blocks;
};
extern Here here;  // of the thread that runs

unsigned shuffle_xor(unsigned value, unsigned lanes);
int synchronize_or(int value);
int atomic_or(int* at, int bits);

}  // namespace host

#define threadIdx host::here.thread
#define blockIdx host::here.block
#define blockDim host::here.threads
#define gridDim host::here.blocks

inline unsigned __shfl_xor_sync(unsigned, unsigned value, unsigned lanes) { return host::shuffle_xor(value, lanes); }
inline float __shfl_xor_sync(unsigned, float value, unsigned lanes) {
    return __uint_as_float(host::shuffle_xor(__float_as_uint(value), lanes));
}
inline int __syncthreads_or(int value) { return host::synchronize_or(value); }
inline int atomicOr(int* at, int bits) { return host::atomic_or(at, bits); }
