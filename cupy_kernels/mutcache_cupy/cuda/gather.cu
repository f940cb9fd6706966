// Kernels that decode rows of pages. blockIdx.y is the number of the transfer.

#include "decode.cuh"

#define DECODE(name, codec, bits, element)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) mutcache_decode_##name(const Rows* table, i32* status) { \
        const Rows rows = table[blockIdx.y];                                                                   \
        Page page;                                                                                             \
        if (admit(rows, page, status + blockIdx.y)) decode_vectors<codec, bits, element>(rows, page);          \
    }

#include "codecs.inc"
FOR_EACH_CODEC(DECODE)

template <int CODEC, int BITS>
FUNCTION void decode_any(const Rows& rows, const Page& page) {
    if (page.lanes_log2 == NO_VECTORS) {
        decode_groups<CODEC, BITS, NONE>(rows, page);
    } else {
        decode_vectors<CODEC, BITS, NONE>(rows, page);
    }
}

// Rows of pages of all types, decoded side by side.
extern "C" __global__ void __launch_bounds__(256, 3) mutcache_gather(const Rows* table, i32* status) {
    const Rows rows = table[blockIdx.y];
    Page page;
    if (!admit(rows, page, status + blockIdx.y)) return;
    if (page.codec == IDENTITY) {
        copy_rows(rows, page.payload, true);
    } else {
        DISPATCH(decode_any, page, rows, page)
    }
}
