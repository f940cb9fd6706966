// The records that the host writes and kernels read. records.py has the same layouts; both sides assert the sizes.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// How many elements one thread of the vector paths takes: 32 bytes of a 16-bit type, 16 bytes of 8-bit codes.
#define VECTOR 16

enum Codec : u8 { IDENTITY, CAST, STATIC, SYMMETRIC, ZERO_POINT, CORRECTION, SCALED_E4M3, SCALED_E2M1, ABSENT = 255 };

// Types of elements, scales and corrections.
enum Type : u8 { F32, F16, BF16, E4M3, E8M0, NONE = 255 };

// What a kernel found wrong with an update; bits of its status word.
enum Status : i32 { NEGATIVE = 1, OVERFLOW = 2, NO_PAGE = 4 };

// n / divisor for n < 2^31 as (n * multiplier) >> (32 + shift); multiplier 0 stands for the divisor 1.
struct Divisor {
    u32 divisor, multiplier, shift;
};

// One page: its payload, and where its parts lie in it. Group g has its codes at payload + g * code_stride.
struct Page {
    u64 payload;
    i64 scale_offset, aux_offset;  // of group 0; aux is the zero point or the correction
    u32 code_stride, scale_stride, aux_stride;
    u32 block;        // elements of a group
    float scale;      // of STATIC
    i32 zero_point;   // of STATIC
    u8 codec;
    u8 bits;          // of a code
    u8 scale_type;
    u8 aux_type;      // of the correction
    u8 is_signed;     // STATIC: codes are signed
    u8 lanes_log2;    // vectors of a group as a power of 2, or NO_VECTORS
    u8 unit;          // bytes, a power of 2, that the codes of every vector are aligned to
    u8 is_aligned;    // scales and corrections are aligned to their size
};
#define NO_VECTORS 255

// One transfer between rows of `values` and rows of a page, for many of which there is one launch.
// An item is what a thread takes at once: `unit` bytes of a dense cache or an identity page, VECTOR elements of an
// encoded page, or one of its groups where it has no vectors.
struct Rows {
    u64 values;       // [outer][length][row], with values_gap items after each run of rows; for a re-encoding its Page
    u64 pages;        // Page[n_pages] on the device
    u64 page_id;      // i64 on the device, or 0 for page 0
    u64 positions;    // i64[starts] on the device, or 0 for position 0
    i64 n_pages;
    i64 capacity;     // rows of a page along the axis
    i64 length;       // rows of values along the axis
    i64 values_gap;   // items of values between two runs
    i64 page_gap;     // items of the page between two runs
    u32 row_items;    // items of one row
    u32 items;        // items of values
    u32 starts;       // positions to judge
    u8 element;       // type of the elements of an encoded page
    u8 unit;          // bytes of an item of a copy: 1, 2, 4, 8, 16, 32 or 64
    u8 is_circular;
    u8 is_general;    // circular, or one position for each row of a batch: places are found by the divisors below
    Divisor run;      // items of a run: length * row_items
    Divisor width;    // items of a piece, the longest run of values that has one position
    Divisor after;    // pieces of one row
    Divisor rows;     // length
    Divisor step;     // pieces or outer indices that share a position
    Divisor batch;    // positions
    u32 is_batch_outer;  // whether the batch axis stands before the axis that is updated
    u32 reserved;
};

static_assert(sizeof(Divisor) == 12, "Divisor");
static_assert(sizeof(Page) == 56, "Page");
static_assert(sizeof(Rows) == 168, "Rows");
