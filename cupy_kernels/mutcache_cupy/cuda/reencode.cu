// The kernel that gives pages another type: decoded by the old one, encoded by the new one.

#include "decode.cuh"
#include "encode.cuh"

template <int CODEC, int BITS>
FUNCTION void decode_one(const Page& page, u32 group, u32 index, u8 element, float* x) {
    *x = Decoder<CODEC, BITS>(page, group, element).value(load_code<BITS>(page, group, index), page.is_signed);
}

template <int CODEC, int BITS>
FUNCTION void decode_item(const Page& page, u32 item, u8 element, float (&x)[VECTOR]) {
    decode_vector<CODEC, BITS>(page, item, element, x);
}

// x as the element type holds it.
FUNCTION float rounded(float x, u8 type) {
    return type == F32 ? x : type == F16 ? from_f16(to_f16(x)) : from_bf16(to_bf16(x));
}

// The elements of a page, as if it had been decoded.
struct Decoded {
    const Page* page;
    u8 type;
    FUNCTION explicit Decoded(const Rows& rows) : page(at_address<const Page>(rows.values)), type(rows.element) {}

    // Out of line: every codec of the new type calls it, and it has code for every codec of the old one.
    __device__ __noinline__ float load_one(i64 element) const {
        float x = 0.0f;
        if (page->codec == IDENTITY) return load_element(at_address<const u8>(page->payload) + element * size_of(type), type);
        const u32 group = (u32)((u64)element / page->block);
        const u32 index = (u32)(element - (i64)group * page->block);
        DISPATCH(decode_one, *page, *page, group, index, type, &x)
        return rounded(x, type);
    }

    FUNCTION void load_item(u32 item, float (&x)[VECTOR]) const {
        if (page->lanes_log2 == NO_VECTORS) {
            for (int i = 0; i < VECTOR; i++) x[i] = load_one((i64)item * VECTOR + i);
        } else if (page->codec == IDENTITY) {
            load_vector(at_address<const u8>(page->payload) + (u64)item * (VECTOR * size_of(type)), type, x);
        } else {
            DISPATCH(decode_item, *page, *page, item, type, x)
            for (int i = 0; i < VECTOR; i++) x[i] = rounded(x[i], type);
        }
    }
};

// VECTOR elements a thread, decoded and encoded one codec after the other.
FUNCTION void reencode_vectors(const Rows& rows, const Page& page, const Decoded& source) {
    for (u32 start = blockIdx.x * blockDim.x; start < rows.items; start += gridDim.x * blockDim.x) {
        const u32 item = start + threadIdx.x;
        float x[VECTOR];
        source.load_item(min(item, rows.items - 1), x);
        DISPATCH(encode_item, page, rows, page, 0u, item, x)
    }
}

// The payloads must not overlap: a type change in place reads a copy of the old bytes.
extern "C" __global__ void __launch_bounds__(256, 2) mutcache_reencode(const Rows* table, i32* status) {
    const Rows rows = table[blockIdx.y];
    Page page;
    if (!admit(rows, page, status + blockIdx.y)) return;
    const Decoded source(rows);
    if (page.codec == IDENTITY) {
        for (u32 item = blockIdx.x * blockDim.x + threadIdx.x; item < rows.items; item += gridDim.x * blockDim.x) {
            store_element(at_address<u8>(page.payload) + (u64)item * size_of(rows.element), source.load_one(item), rows.element);
        }
    } else if (page.lanes_log2 != NO_VECTORS) {
        reencode_vectors(rows, page, source);
    } else {
        DISPATCH(encode_groups, page, rows, page, source)
    }
}
