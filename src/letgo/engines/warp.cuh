// What the kernels share: how activations lie in memory, one warp's matrix products (mma.m16n8k16, bf16 in, fp32 sums) and its random bits.
//
// In a warp's 16 x 8 accumulator, lane (g, t) = (lane / 4, lane % 4) holds columns 2t and 2t + 1 of rows g and g + 8.
// Two such tiles side by side, packed to bf16, are the A operand of the next product: no exchange between lanes.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

__device__ __forceinline__ int padded(int cells) { return (cells + 7) / 8 * 8; }

// Activations lie in memory as 8 x 8 cores, eight cells by eight features, so that a warp's tile is one piece: where
// (cell, column) of a tensor `width` wide is found. Eight cells on: 8 * width further; eight columns on: 64.
__device__ __forceinline__ long long place(int cell, int column, int width) {
    return (long long)(cell >> 3) * (8 * width) + ((column >> 3) * 64 + (cell & 7) * 8 + (column & 7));
}

__device__ __forceinline__ void mma(float* c, const u32* a, u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Dropout without a stored mask: `place` counts (row, column) with odd steps; the result's high bits are random.
#ifdef DROP
#define ROW_STEP 0x9E3779B1u
#define COLUMN_STEP 0x85EBCA6Bu
__device__ __forceinline__ u32 scrambled(u32 place) { return (place ^ (place >> 15)) * 0xC2B2AE35u; }
__device__ __forceinline__ bool dropped(u32 place) { return scrambled(place) < (u32)DROP << 16; }
// Four that share a number drop out one at a time: the m-th of them where the number lies in the m-th stretch of DROP << 16.
// A comparison leaves two bits, p "in this stretch" and q "beyond it", which the next one needs.
#define END_OF(m) ((m) * ((u32)DROP << 16) - 1)
__device__ __forceinline__ void without_one(float& a, float& b, float& c, float& d, u32 number) {
    asm("{ .reg .pred p0, q0, p1, q1, p2, q2, p3;\n"
        "setp.le.u32 p0|q0, %4, %5; selp.f32 %0, 0f00000000, %0, p0;\n"
        "setp.le.and.u32 p1|q1, %4, %6, q0; selp.f32 %1, 0f00000000, %1, p1;\n"
        "setp.le.and.u32 p2|q2, %4, %7, q1; selp.f32 %2, 0f00000000, %2, p2;\n"
        "setp.le.and.u32 p3, %4, %8, q2; selp.f32 %3, 0f00000000, %3, p3; }"
        : "+&f"(a), "+&f"(b), "+&f"(c), "+&f"(d)
        : "r"(number), "n"(END_OF(1)), "n"(END_OF(2)), "n"(END_OF(3)), "n"(END_OF(4)));
}
// The same for one of each pair in bf16: `mask` keeps the other.
__device__ __forceinline__ void without_one(u32* pairs, u32 number, u32 mask) {
    asm("{ .reg .pred p0, q0, p1, q1, p2, q2, p3;\n"
        "setp.le.u32 p0|q0, %4, %5; @p0 and.b32 %0, %0, %9;\n"
        "setp.le.and.u32 p1|q1, %4, %6, q0; @p1 and.b32 %1, %1, %9;\n"
        "setp.le.and.u32 p2|q2, %4, %7, q1; @p2 and.b32 %2, %2, %9;\n"
        "setp.le.and.u32 p3, %4, %8, q2; @p3 and.b32 %3, %3, %9; }"
        : "+&r"(pairs[0]), "+&r"(pairs[1]), "+&r"(pairs[2]), "+&r"(pairs[3])
        : "r"(number), "n"(END_OF(1)), "n"(END_OF(2)), "n"(END_OF(3)), "n"(END_OF(4)), "r"(mask));
}
#endif
// The start of a site's places.
__device__ __forceinline__ u32 stream(const long long* seed, u32 number) {
    u32 x = (u32)(*seed) + (number + 1) * 0x85EBCA6Bu;
    x = (x ^ (x >> 16)) * 0xC2B2AE35u;
    return x ^ (x >> 15);
}
