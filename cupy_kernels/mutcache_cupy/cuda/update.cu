// Kernels that write rows into dense caches and pages, in place. blockIdx.y is the number of the transfer.

#include "encode.cuh"

// A dense CacheUpdate, or an update of identity pages.
extern "C" __global__ void __launch_bounds__(256) mutcache_dense_update(const Rows* table, i32* status) {
    const Rows rows = table[blockIdx.y];
    Page page;
    if (admit(rows, page, status + blockIdx.y)) copy_rows(rows, page.payload, false);
}

// One kernel for each codec and element type.
#define ENCODE(name, codec, bits, element)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) mutcache_encode_##name(const Rows* table, i32* status) { \
        const Rows rows = table[blockIdx.y];                                                                   \
        Page page;                                                                                             \
        if (admit(rows, page, status + blockIdx.y)) {                                                          \
            encode_vectors<codec, bits>(rows, page, Elements<element>(rows));                                  \
        }                                                                                                      \
    }

#include "codecs.inc"
FOR_EACH_CODEC(ENCODE)

template <int CODEC, int BITS>
FUNCTION void encode_any(const Rows& rows, const Page& page) {
    const Elements<NONE> source(rows);
    if (page.lanes_log2 == NO_VECTORS) {
        encode_groups<CODEC, BITS>(rows, page, source);
    } else {
        encode_vectors<CODEC, BITS>(rows, page, source);
    }
}

// A whole decode step: dense rows and pages of all types, of all layers, in one launch.
extern "C" __global__ void __launch_bounds__(256, 3) mutcache_step(const Rows* table, i32* status) {
    const Rows rows = table[blockIdx.y];
    Page page;
    if (!admit(rows, page, status + blockIdx.y)) return;
    if (page.codec == IDENTITY) {
        copy_rows(rows, page.payload, false);
    } else {
        DISPATCH(encode_any, page, rows, page)
    }
}
