// Runs kernels on the CPU: the threads of a block are fibers, each of which runs to its next collective operation.
//
// Kernels that are compiled with checks (-fsanitize=thread,alignment,...) call the functions at the end of this file
// before each access to memory, and where behaviour is undefined. So no runtime of a sanitizer is needed. An access that
// a device would refuse, or that meets one of another thread, ends the launch before it is made.
#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <numeric>
#include <random>
#include <ucontext.h>
#include <unordered_map>
#include <vector>

#include "host_shim.h"

namespace host {

using Kernel = void (*)(const void*, int*);

constexpr std::size_t STACK = 64 << 10;
constexpr unsigned WARP = 32;

Here here;

enum State { READY, AT_SHUFFLE, AT_BARRIER, ENDED };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(STACK);
    State state;
    unsigned value, lanes;  // what it brings to a collective operation, and takes away
};

// Which threads, counted from 1, have read and written a byte in this launch.
struct Traces {
    unsigned reader, writer;
};
constexpr unsigned MANY = ~0u;

// Those of neighbouring bytes, from a multiple of their number on.
constexpr std::size_t LINE = 256;
using Line = std::array<Traces, LINE>;

// Memory that kernels may use.
struct Range {
    std::uintptr_t start, stop;
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static Kernel kernel;
static const void* table;
static int* status;
static std::vector<Range> ranges;  // in ascending order
static std::unordered_map<std::uintptr_t, Line> lines;  // of the bytes that were accessed, by their address
static char fault[512];            // what ended the launch

static Fiber& fiber() { return fibers[here.thread.x]; }

static unsigned thread_number() {
    return (here.block.y * here.blocks.x + here.block.x) * here.threads.x + here.thread.x + 1;
}

// End the launch.
[[gnu::format(printf, 1, 2)]] static void stop(const char* format, ...) {
    int length = std::snprintf(
        fault, sizeof fault, "thread %u of block (%u, %u): ", here.thread.x, here.block.x, here.block.y);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(fault + length, sizeof fault - length, format, arguments);
    va_end(arguments);
    setcontext(&scheduler);
}

static unsigned wait(State state, unsigned value, unsigned lanes = 0) {
    fiber().state = state, fiber().value = value, fiber().lanes = lanes;
    swapcontext(&fiber().context, &scheduler);
    return fiber().value;
}

unsigned shuffle_xor(unsigned value, unsigned lanes) { return wait(AT_SHUFFLE, value, lanes); }

int synchronize_or(int value) { return (int)wait(AT_BARRIER, value != 0); }

static bool are(unsigned first, unsigned count, State state) {
    const auto start = fibers.begin() + first;
    return std::all_of(start, start + count, [state](const Fiber& fiber) { return fiber.state == state; });
}

// Let fibers go on whose collective operation is complete; false if there are none.
static bool resume() {
    bool is_any = false;
    for (unsigned warp = 0; warp < fibers.size(); warp += WARP) {
        if (!are(warp, WARP, AT_SHUFFLE)) continue;
        unsigned values[WARP];
        for (unsigned lane = 0; lane < WARP; lane++) values[lane] = fibers[warp + lane].value;
        for (unsigned lane = 0; lane < WARP; lane++) {
            Fiber& fiber = fibers[warp + lane];
            fiber.value = values[(lane ^ fiber.lanes) % WARP];
            fiber.state = READY;
        }
        is_any = true;
    }
    if (are(0, fibers.size(), AT_BARRIER)) {
        const bool found = std::any_of(fibers.begin(), fibers.end(), [](const Fiber& fiber) { return fiber.value; });
        for (Fiber& fiber : fibers) fiber.value = found, fiber.state = READY;
        is_any = true;
    }
    return is_any;
}

static void run_thread() {
    kernel(table, status);
    fiber().state = ENDED;
}

// Numbers below `count` in the order in which they are to run.
static std::vector<unsigned> ordered(unsigned count, std::minstd_rand* random) {
    std::vector<unsigned> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (random) std::shuffle(numbers.begin(), numbers.end(), *random);
    return numbers;
}

static void run_block(std::minstd_rand* random) {
    for (Fiber& fiber : fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &scheduler;
        fiber.state = READY;
        makecontext(&fiber.context, run_thread, 0);
    }
    do {
        for (unsigned thread : ordered(fibers.size(), random)) {
            here.thread.x = thread;
            if (fiber().state == READY) swapcontext(&scheduler, &fiber().context);
            if (*fault) return;
        }
        if (are(0, fibers.size(), ENDED)) return;
    } while (resume());
    std::snprintf(
        fault, sizeof fault, "block (%u, %u): threads wait for others that do not come", here.block.x, here.block.y);
}

static void check(std::uintptr_t at, std::size_t size, bool is_write, bool is_atomic = false) {
    const auto found = std::upper_bound(
        ranges.begin(), ranges.end(), at, [](std::uintptr_t at, const Range& range) { return at < range.stop; });
    const char* verb = is_write ? "writes" : "reads";
    if (found == ranges.end() || at < found->start || at + size > found->stop) {
        stop("%s %zu bytes at %#zx, outside of all memory that was allocated", verb, size, (std::size_t)at);
        return;
    }
    if (is_atomic) return;
    const unsigned mine = thread_number();
    Line* line = nullptr;
    for (std::size_t i = 0; i < size; i++) {
        const std::size_t place = (at + i) % LINE;
        if (line == nullptr || place == 0) line = &lines[(at + i) / LINE];
        Traces& trace = (*line)[place];
        const bool is_written = trace.writer != 0 && trace.writer != mine;
        if (is_written || (is_write && trace.reader != 0 && trace.reader != mine)) {
            stop("%s the byte at %#zx, which another thread %s", verb, (std::size_t)(at + i), is_written ? "writes" : "reads");
            return;
        }
        if (is_write) {
            trace.writer = mine;
        } else {
            trace.reader = trace.reader == 0 || trace.reader == mine ? mine : MANY;
        }
    }
}

int atomic_or(int* at, int bits) {
    if ((std::uintptr_t)at % sizeof *at) stop("an atomic operation at %#zx, not a multiple of 4", (std::size_t)at);
    check((std::uintptr_t)at, sizeof *at, true, true);
    const int old = *at;
    *at |= bits;
    return old;
}

}  // namespace host

using namespace host;

// Run a kernel to its end. `bounds` are the starts and ends of the memory that it may use, ascending. `order` is 0 for threads and blocks in their order, else the seed of another
// one. Returns what is wrong with the kernel, or an empty string.
extern "C" const char* mutcache_host_launch(
    Kernel function, unsigned grid_x, unsigned grid_y, unsigned block, const void* rows, int* flags,
    const std::uintptr_t* bounds, std::size_t n_ranges, unsigned order) {
    kernel = function, table = rows, status = flags;
    *fault = 0;
    ranges.clear();
    lines.clear();
    for (std::size_t i = 0; i < n_ranges; i++) ranges.push_back({bounds[2 * i], bounds[2 * i + 1]});
    if (fibers.size() != block) fibers = std::vector<Fiber>(block);
    here.blocks = {grid_x, grid_y, 1};
    here.threads = {block, 1, 1};
    std::minstd_rand random(order);
    for (unsigned number : ordered(grid_x * grid_y, order ? &random : nullptr)) {
        here.block = {number % grid_x, number / grid_x, 0};
        run_block(order ? &random : nullptr);
        if (*fault) break;
    }
    return fault;
}

// What the compiler calls before accesses.
static void access(const void* at, std::size_t size, bool is_write) {
    const char* address = (const char*)at;
    const char* stack = fiber().stack.data();
    if (address >= stack && address < stack + STACK) return;
    if (address >= (const char*)&here && address < (const char*)(&here + 1)) return;
    check((std::uintptr_t)at, size, is_write);
}

#define ACCESSES(size)                                                                          \
    extern "C" void __tsan_read##size(void* at) { access(at, size, false); }                    \
    extern "C" void __tsan_write##size(void* at) { access(at, size, true); }                    \
    extern "C" void __tsan_unaligned_read##size(void* at) { access(at, size, false); }          \
    extern "C" void __tsan_unaligned_write##size(void* at) { access(at, size, true); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" void __tsan_read_range(void* at, std::size_t size) { access(at, size, false); }
extern "C" void __tsan_write_range(void* at, std::size_t size) { access(at, size, true); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

// What it calls where behaviour is undefined; the data begin with the place in the source.
struct Place {
    const char* file;
    unsigned line, column;
};

extern "C" void __ubsan_handle_type_mismatch_v1(const Place* place, std::size_t at) {
    stop("%s:%u: the address %#zx is not aligned to what is accessed", place->file, place->line, at);
}

#define UNDEFINED(name, what)                                               \
    extern "C" void __ubsan_handle_##name(const Place* place) {             \
        stop("%s:%u: %s", place->file, place->line, what);                  \
    }
UNDEFINED(add_overflow, "a sum overflows")
UNDEFINED(sub_overflow, "a difference overflows")
UNDEFINED(mul_overflow, "a product overflows")
UNDEFINED(negate_overflow, "a negation overflows")
UNDEFINED(divrem_overflow, "a division by zero, or one that overflows")
UNDEFINED(shift_out_of_bounds, "a shift by more than the width, or of a sign")
UNDEFINED(out_of_bounds, "an index beyond its array")
UNDEFINED(load_invalid_value, "a value that its type does not have")
