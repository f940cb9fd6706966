// CUDA for g++: enough of it to run the kernels of this folder on the CPU, thread by thread, and compare every byte.
//
// The threads of a block are fibers that take turns, each up to its next collective operation. This finds mistakes of
// arithmetic, layout and bounds. It finds neither races nor mistakes in inline PTX: the check on a device does.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __builtin_assume(condition)

struct Dim3 {
    unsigned x, y, z;
};
static Dim3 threadIdx, blockIdx, blockDim, gridDim;

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
inline int atomicOr(int* at, int bits) {
    const int old = *at;
    *at |= bits;
    return old;
}

namespace host {

using Kernel = void (*)(const void*, int*);

constexpr std::size_t STACK = 64 << 10;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(STACK);
    bool is_done;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static std::vector<unsigned> exchanged;  // by lane, of the shuffle under way
static unsigned arrived, left_over;      // of the block's barrier
static int gathered;
static Kernel kernel;
static const void* table;
static int* status;

inline void yield() { swapcontext(&fibers[threadIdx.x].context, &scheduler); }

static void run_thread() {
    kernel(table, status);
    fibers[threadIdx.x].is_done = true;
}

static void run_block() {
    for (Fiber& fiber : fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &scheduler;
        fiber.is_done = false;
        makecontext(&fiber.context, run_thread, 0);
    }
    arrived = left_over = 0;
    gathered = 0;
    for (bool is_running = true; is_running;) {
        is_running = false;
        for (unsigned thread = 0; thread < blockDim.x; thread++) {
            if (fibers[thread].is_done) continue;
            threadIdx.x = thread;
            swapcontext(&scheduler, &fibers[thread].context);
            is_running = true;
        }
    }
}

}  // namespace host

// The lanes of a warp call these equally often, so that they are at the same call in the same turn.
inline unsigned __shfl_xor_sync(unsigned, unsigned value, unsigned lanes) {
    const unsigned mine = threadIdx.x;
    host::exchanged[mine] = value;
    host::yield();
    const unsigned other = host::exchanged[mine ^ lanes];
    host::yield();
    return other;
}
inline float __shfl_xor_sync(unsigned mask, float value, unsigned lanes) {
    return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(value), lanes));
}

inline int __syncthreads_or(int value) {
    while (host::left_over) host::yield();  // of the barrier before
    host::gathered |= value;
    host::arrived++;
    while (host::arrived < blockDim.x) host::yield();
    const int result = host::gathered;
    if (++host::left_over == blockDim.x) {
        host::arrived = host::left_over = 0;
        host::gathered = 0;
    }
    return result;
}

extern "C" void mutcache_host_launch(
    host::Kernel kernel, unsigned grid_x, unsigned grid_y, unsigned block, const void* table, int* status) {
    host::kernel = kernel;
    host::table = table;
    host::status = status;
    if (host::fibers.size() != block) host::fibers = std::vector<host::Fiber>(block);
    host::exchanged.assign(block, 0);
    gridDim = {grid_x, grid_y, 1};
    blockDim = {block, 1, 1};
    for (unsigned y = 0; y < grid_y; y++) {
        for (unsigned x = 0; x < grid_x; x++) {
            blockIdx = {x, y, 0};
            host::run_block();
        }
    }
}
