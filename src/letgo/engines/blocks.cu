// The parts of a Transformer block that act on one cell at a time (Hopper: wgmma). A warpgroup of four warps owns 64
// cells and keeps their activations in registers; weights pass through shared memory in slices that all warps share.
//
// Defined by the caller: HIDDEN, WARPS (per block, a multiple of 4), BLOCKS (per multiprocessor), DROP (dropout
// probability in 1/65536), HALF (the residual stream in bf16). The width is 128.
//
// Weights are kept as 8 x 8 cores of 128 bytes, eight rows of 16 bytes, ordered by `arrange` so that a slice is one
// piece of memory and one bulk copy. A core serves both ways: summed over its columns (B^T) or over its rows (B), so a
// slice fetched once is used for both products.

#define THREADS (WARPS * 32)
#define SLICE 32                // rows of W1 or Wqkv, or columns of W2, held at a time
#define PIECE (SLICE * D)       // elements of a slice
#define RING (WARPS > 4 ? 6 : 3)  // slices, or pairs of slices, in shared memory
#define LAG (WARPS > 4 ? 3 : 1)   // how far the warpgroup that fetches them may be ahead of another
#define GROUP (64 * D)          // elements of a warpgroup's cells
#define UPSCALE (65536.0f / (65536 - DROP))

#if HALF  // the residual stream's type: bf16 for sampling, fp32 for training
typedef u16 Residual;
#else
typedef float Residual;
#endif
typedef float Tile[16][4];  // 16 cells x 128 in accumulator layout
typedef u32 Rows[8][4];     // 16 cells x 128 as A operand

struct Lane {
    int lane, g, t, row0;  // this lane's first cell, of its model; the second is eight further
    int cell;              // the same over all models, each rounded up to whole cores
    bool in0, in1;
};

__device__ __forceinline__ Lane lane_of(int M, int block) {
    Lane l;
    l.lane = threadIdx.x & 31, l.g = l.lane >> 2, l.t = l.lane & 3;
    l.row0 = (block * WARPS + (threadIdx.x >> 5)) * 16 + l.g;
    l.cell = blockIdx.y * padded(M) + l.row0, l.in0 = l.row0 < M, l.in1 = l.row0 + 8 < M;
    return l;
}

// The ring of slices: `full` counts a slot's bytes, `spent` the warps that are done with it. Warpgroups need not keep
// step: thread 0 fills a slot again when the slowest of them has left it, and by then is itself LAG slices further.
struct Ring {
    u64 *full, *spent;
    __device__ __forceinline__ int slot(int i) const { return i % RING; }
    __device__ __forceinline__ int parity(int i) const { return i / RING & 1; }
    __device__ __forceinline__ void ready(int i) const { await(full + slot(i), parity(i)); }
    __device__ __forceinline__ void leave(int i) const {
        if (threadIdx.x % 32 == 0) arrive(spent + slot(i));
    }
    // At slice i, of `total`: thread 0 calls fetch(slice, slot) for the next slice that fits, if any.
    template <class Fetch>
    __device__ __forceinline__ void refill(int i, int total, Fetch fetch) const {
        if (threadIdx.x != 0 || i < LAG || i - LAG + RING >= total) return;
        await(spent + slot(i - LAG), parity(i - LAG));
        fetch(i - LAG + RING, slot(i - LAG));
    }
};
__device__ __forceinline__ Ring ring_of(u64* bars) {  // 2 * RING of them
    prepare(bars, RING, 1);
    prepare(bars + RING, RING, WARPS);
    return Ring{bars, bars + RING};
}

// Four tiles (32 columns) += a B, a from registers. `turned`: B is summed over the rows of its cores.
template <int turned>
__device__ __forceinline__ void narrow(float (*c)[4], const u32* a, u64 b) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16
                 ", {%16,%17,%18,%19}, %20, p, 1, 1, %21;}"
                 : FOUR(c[0]), FOUR(c[1]), FOUR(c[2]), FOUR(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(turned));
}
// The same with a from shared memory; without `adding`, what the tiles held before is forgotten.
template <int turned, bool adding>
__device__ __forceinline__ void narrow(float (*c)[4], u64 a, u64 b) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %19, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16
                 ", %16, %17, p, 1, 1, 0, %18;}"
                 : FOUR(c[0]), FOUR(c[1]), FOUR(c[2]), FOUR(c[3]) : "l"(a), "l"(b), "n"(turned), "n"((int)adding));
}
// All sixteen tiles (128 columns).
template <int turned>
__device__ __forceinline__ void wide(float (*c)[4], const u32* a, u64 b) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " D64
                 ", {%64,%65,%66,%67}, %68, p, 1, 1, %69;}"
                 : FOUR(c[0]), FOUR(c[1]), FOUR(c[2]), FOUR(c[3]), FOUR(c[4]), FOUR(c[5]), FOUR(c[6]), FOUR(c[7]),
                   FOUR(c[8]), FOUR(c[9]), FOUR(c[10]), FOUR(c[11]), FOUR(c[12]), FOUR(c[13]), FOUR(c[14]), FOUR(c[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(turned));
}

// The B operands of one product, 16 deep, number k of its sum.
__device__ __forceinline__ u64 rows_down(const u16* slice, int k) {  // 32 rows, summed over columns
    return cores(slice + k * 2 * (SLICE * 8), SLICE * 16, 128);
}
__device__ __forceinline__ u64 rows_across(const u16* slice, int k) {  // 128 columns, summed over rows
    return cores(slice + k * 2 * 64, 128, SLICE * 16);
}
__device__ __forceinline__ u64 columns_down(const u16* slice, int k) {  // 128 rows of W2, over columns
    return cores(slice + k * 2 * (D * 8), D * 16, 128);
}
__device__ __forceinline__ u64 columns_across(const u16* slice, int k) {  // 32 columns of W2, over rows
    return cores(slice + k * 2 * 64, 128, D * 16);
}
// A square matrix, whole, both ways.
__device__ __forceinline__ u64 square_down(const u16* w, int k) { return columns_down(w, k); }
__device__ __forceinline__ u64 square_across(const u16* w, int k) { return columns_across(w, k); }
// The A operand: a warpgroup's 64 cells.
__device__ __forceinline__ u64 cells_at(const u16* group, int k) {
    return cores(group + k * 2 * (64 * 8), 64 * 16, 128);
}
__device__ __forceinline__ void put(u16* group, const u32 (*a)[4], const Lane& l) {
    u16* p = group + (threadIdx.x >> 5 & 3) * 2 * 64 + l.g * 8 + 2 * l.t;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        *(u32*)(p + 2 * k * 512) = a[k][0], *(u32*)(p + 2 * k * 512 + 64) = a[k][1];
        *(u32*)(p + (2 * k + 1) * 512) = a[k][2], *(u32*)(p + (2 * k + 1) * 512 + 64) = a[k][3];
    }
}

__device__ __forceinline__ void clear(Tile c) {
#pragma unroll
    for (int j = 0; j < 16; j++) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
}
__device__ __forceinline__ void load(Tile c, const float* from, const Lane& l) {
    const float *p = from + place(l.cell, 2 * l.t, D), *q = p + 8 * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float2 a = make_float2(0, 0), b = a;
        if (l.in0) a = *(const float2*)(p + j * 64);
        if (l.in1) b = *(const float2*)(q + j * 64);
        c[j][0] = a.x, c[j][1] = a.y, c[j][2] = b.x, c[j][3] = b.y;
    }
}
__device__ __forceinline__ void add(Tile c, const float* from, const Lane& l) {
    const float *p = from + place(l.cell, 2 * l.t, D), *q = p + 8 * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float2 a = make_float2(0, 0), b = a;
        if (l.in0) a = *(const float2*)(p + j * 64);
        if (l.in1) b = *(const float2*)(q + j * 64);
        c[j][0] += a.x, c[j][1] += a.y, c[j][2] += b.x, c[j][3] += b.y;
    }
}
__device__ __forceinline__ void store(float* to, const Tile c, const Lane& l) {
    float *p = to + place(l.cell, 2 * l.t, D), *q = p + 8 * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        if (l.in0) *(float2*)(p + j * 64) = make_float2(c[j][0], c[j][1]);
        if (l.in1) *(float2*)(q + j * 64) = make_float2(c[j][2], c[j][3]);
    }
}
// The residual stream in bf16, for sampling.
__device__ __forceinline__ void add(Tile c, const u16* from, const Lane& l) {
    const u16 *p = from + place(l.cell, 2 * l.t, D), *q = p + 8 * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const u32 a = l.in0 ? *(const u32*)(p + j * 64) : 0, b = l.in1 ? *(const u32*)(q + j * 64) : 0;
        c[j][0] += low(a), c[j][1] += high(a), c[j][2] += low(b), c[j][3] += high(b);
    }
}
__device__ __forceinline__ void load(Tile c, const u16* from, const Lane& l) {
    clear(c);
    add(c, from, l);
}
__device__ __forceinline__ void store(u16* to, const Tile c, const Lane& l) {
    u16 *p = to + place(l.cell, 2 * l.t, D), *q = p + 8 * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        if (l.in0) *(u32*)(p + j * 64) = pack(c[j][0], c[j][1]);
        if (l.in1) *(u32*)(q + j * 64) = pack(c[j][2], c[j][3]);
    }
}
__device__ __forceinline__ void prefetch(const char* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// Cells that this warp will load for its next block, on their way into the L2 cache: a lane asks for 128 bytes at a time.
template <class Kind>
__device__ __forceinline__ void hint(const Kind* from, int M, int block) {
    const int first = (block * WARPS + (threadIdx.x >> 5)) * 16, lane = threadIdx.x & 31;
    if (first + 16 > M) return;
    const char* at = (const char*)(from + place(blockIdx.y * padded(M) + first, 0, D)) + lane * 128;
#pragma unroll
    for (int i = 0; i < (int)sizeof(Kind) / 2; i++) prefetch(at + i * 4096);
}
template <int steps>
__device__ __forceinline__ void pack(u32 (*a)[4], const float (*c)[4]) {
#pragma unroll
    for (int k = 0; k < steps; k++) {
        a[k][0] = pack(c[2 * k][0], c[2 * k][1]), a[k][1] = pack(c[2 * k][2], c[2 * k][3]);
        a[k][2] = pack(c[2 * k + 1][0], c[2 * k + 1][1]), a[k][3] = pack(c[2 * k + 1][2], c[2 * k + 1][3]);
    }
}
template <int steps>
__device__ __forceinline__ void load(u32 (*a)[4], const u16* from, int column, int width, const Lane& l) {
    const u16 *p = from + place(l.cell, column + 2 * l.t, width), *q = p + 8 * width;
#pragma unroll
    for (int k = 0; k < steps; k++) {
        a[k][0] = l.in0 ? *(const u32*)(p + k * 128) : 0, a[k][2] = l.in0 ? *(const u32*)(p + k * 128 + 64) : 0;
        a[k][1] = l.in1 ? *(const u32*)(q + k * 128) : 0, a[k][3] = l.in1 ? *(const u32*)(q + k * 128 + 64) : 0;
    }
}
template <int steps>
__device__ __forceinline__ void store(u16* to, const u32 (*a)[4], int column, int width, const Lane& l) {
    u16 *p = to + place(l.cell, column + 2 * l.t, width), *q = p + 8 * width;
#pragma unroll
    for (int k = 0; k < steps; k++) {
        if (l.in0) *(u32*)(p + k * 128) = a[k][0], *(u32*)(p + k * 128 + 64) = a[k][2];
        if (l.in1) *(u32*)(q + k * 128) = a[k][1], *(u32*)(q + k * 128 + 64) = a[k][3];
    }
}

__device__ __forceinline__ float across(float x) {  // sum over the four lanes of a row
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// c becomes (c - mean) / deviation; returns 1 / deviation of the lane's two rows.
__device__ __forceinline__ float2 normalise(Tile c) {
    float s0 = 0, s1 = 0, v0 = 0, v1 = 0;
#pragma unroll
    for (int j = 0; j < 16; j++) s0 += c[j][0] + c[j][1], s1 += c[j][2] + c[j][3];
    s0 = across(s0) / D, s1 = across(s1) / D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        c[j][0] -= s0, c[j][1] -= s0, c[j][2] -= s1, c[j][3] -= s1;
        v0 += c[j][0] * c[j][0] + c[j][1] * c[j][1], v1 += c[j][2] * c[j][2] + c[j][3] * c[j][3];
    }
    v0 = rsqrtf(across(v0) / D + 1e-5f), v1 = rsqrtf(across(v1) / D + 1e-5f);
#pragma unroll
    for (int j = 0; j < 16; j++) c[j][0] *= v0, c[j][1] *= v0, c[j][2] *= v1, c[j][3] *= v1;
    return make_float2(v0, v1);
}
__device__ __forceinline__ void scale_shift(Tile c, const float* gain, const float* shift, int t) {
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const float2 a = *(const float2*)(gain + j * 8 + 2 * t), b = *(const float2*)(shift + j * 8 + 2 * t);
        c[j][0] = c[j][0] * a.x + b.x, c[j][1] = c[j][1] * a.y + b.y;
        c[j][2] = c[j][2] * a.x + b.x, c[j][3] = c[j][3] * a.y + b.y;
    }
}
// The gradient dn at a LayerNorm's output becomes the one at its input. `unit` is the normalised input.
__device__ __forceinline__ void norm_backward(Tile dn, const Tile unit, float2 rstd, const float* gain, int t) {
    float m0 = 0, m1 = 0, a0 = 0, a1 = 0;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const float2 w = *(const float2*)(gain + j * 8 + 2 * t);
        dn[j][0] *= w.x, dn[j][1] *= w.y, dn[j][2] *= w.x, dn[j][3] *= w.y;
        m0 += dn[j][0] + dn[j][1], m1 += dn[j][2] + dn[j][3];
        a0 += dn[j][0] * unit[j][0] + dn[j][1] * unit[j][1], a1 += dn[j][2] * unit[j][2] + dn[j][3] * unit[j][3];
    }
    m0 = across(m0) / D, m1 = across(m1) / D, a0 = across(a0) / D, a1 = across(a1) / D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        dn[j][0] = (dn[j][0] - m0 - unit[j][0] * a0) * rstd.x, dn[j][1] = (dn[j][1] - m0 - unit[j][1] * a0) * rstd.x;
        dn[j][2] = (dn[j][2] - m1 - unit[j][2] * a1) * rstd.y, dn[j][3] = (dn[j][3] - m1 - unit[j][3] * a1) * rstd.y;
    }
}
// Adds the block's sums over cells of dn * unit and dn to the gradients of a norm's gain and shift.
__device__ __forceinline__ void norm_gradients(float* gain, float* shift, const Tile dn, const Tile unit, u16* free, const Lane& l) {
    float *room = (float*)free, *mine = room + (threadIdx.x >> 5) * 2 * D;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float s[4] = {dn[j][0] * unit[j][0] + dn[j][2] * unit[j][2], dn[j][1] * unit[j][1] + dn[j][3] * unit[j][3],
                      dn[j][0] + dn[j][2], dn[j][1] + dn[j][3]};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[e] += __shfl_xor_sync(~0u, s[e], 4);
            s[e] += __shfl_xor_sync(~0u, s[e], 8);
            s[e] += __shfl_xor_sync(~0u, s[e], 16);
        }
        if (l.g == 0) {
            *(float2*)(mine + j * 8 + 2 * l.t) = make_float2(s[0], s[1]);
            *(float2*)(mine + D + j * 8 + 2 * l.t) = make_float2(s[2], s[3]);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * D; i += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += room[w * 2 * D + i];
        atomicAdd((i < D ? gain : shift - D) + i, sum);
    }
    __syncthreads();
}
__device__ __forceinline__ void dropout(Tile c, u32 dice, const Lane& l) {
    if (DROP == 0) return;
    const u32 start = dice + l.row0 * ROW_STEP + 2 * l.t * COLUMN_STEP;
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 place = start + (j * 8 + (e & 1)) * COLUMN_STEP + (e >> 1) * 8 * ROW_STEP;
            c[j][e] = dropped(place) ? 0 : c[j][e] * UPSCALE;
        }
}
__device__ __forceinline__ void add_bias(Tile c, const float* bias, int t) {
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const float2 b = *(const float2*)(bias + j * 8 + 2 * t);
        c[j][0] += b.x, c[j][1] += b.y, c[j][2] += b.x, c[j][3] += b.y;
    }
}
// Four tiles that start from their biases.
__device__ __forceinline__ void biases(float (*c)[4], const float* bias, int t) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 b = *(const float2*)(bias + j * 8 + 2 * t);
        c[j][0] = c[j][2] = b.x, c[j][1] = c[j][3] = b.y;
    }
}
// A constant from shared memory, read after the products before it were issued: what depends on it cannot be moved ahead of
// them by the compiler, which otherwise computes first and multiplies then.
__device__ __forceinline__ float later(const float* constant) {
    float value;
    asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(value) : "r"(address(constant)) : "memory");
    return value;
}
__device__ __forceinline__ float tanh_fast(float x) {
    float t;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(x));
    return t;
}
// Phi(u) by the hyperbolic tangent of an odd polynomial, fitted so that gelu = u Phi(u) would be right to 3e-5 with an
// exact tangent; the hardware's is right to 5e-4, less than bf16 shows.
__device__ __forceinline__ float normal_cdf(float u, float most) {  // most: 36
    const float z = fminf(u * u, most);
    return 0.5f + 0.5f * tanh_fast(u * (0.7975079f + z * (0.037005596f + z * -0.00035151f)));
}
__device__ __forceinline__ float gelu_slope(float u, float cdf) {
    return cdf + u * 0.3989422804014327f * exp2_fast(u * u * -0.7213475204444817f);
}

// The weights of all layers in bf16, as cores, each slice in one piece; the place of a matrix in its layer is kept.
extern "C" __global__ void arrange(const float* w32, u16* w16, int total, int layer) {
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= total) return;
    const int at = i % layer;
    int from;
    if (at >= BQKV) from = at;
    else if (at >= W2) {  // slices of columns
        const int slice = (at - W2) / PIECE, core = (at - W2) % PIECE / 64, row = core % (D / 8) * 8 + at % 64 / 8;
        from = W2 + row * HIDDEN + slice * SLICE + core / (D / 8) * 8;
    } else {  // slices of rows; Wo is one slice
        const int rows = at >= WO && at < W1 ? D : SLICE, start = at >= W1 ? W1 : at >= WO ? WO : WQKV;
        const int slice = (at - start) / (rows * D), core = (at - start) % (rows * D) / 64;
        from = start + (slice * rows + core % (rows / 8) * 8 + at % 64 / 8) * D + core / (rows / 8) * 8;
    }
    const float* p = w32 + (long long)blockIdx.y * total + (i - at) + from;
    const float4 a = *(const float4*)p, b = *(const float4*)(p + 4);
    *(uint4*)(w16 + (long long)blockIdx.y * total + i) = make_uint4(pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w));
}

// qkv = LN(x) Wqkv^T + b. The matrix is fetched once and stays; blocks go on to other cells.
extern "C" __global__ void __launch_bounds__(THREADS, 1) qkv_forward(
    const Residual* __restrict__ x, const u16* __restrict__ w16, const float* __restrict__ w32, u16* __restrict__ qkv,
    int M, int model, int layer) {
    extern __shared__ __align__(128) u16 shared[];
    const int count = 3 * D / SLICE, blocks = (M + 16 * WARPS - 1) / (16 * WARPS);
    __shared__ u64 bars[count];
    const long long weights = (long long)blockIdx.y * model + layer;
    w16 += weights + WQKV, w32 += weights;
    prepare(bars, count);
    if (threadIdx.x == 0)
        for (int s = 0; s < count; s++) expect(bars + s, PIECE * 2), issue(bars + s, shared + s * PIECE, w16 + s * PIECE, PIECE * 2);
    const u64 rows = rows_down(shared, 0);
    for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
        const Lane l = lane_of(M, block);
        Tile c;
        Rows n;
        load(c, x, l);
        hint(x, M, block + gridDim.x);
        normalise(c);
        scale_shift(c, w32 + GAIN1, w32 + SHIFT1, l.t);
        pack<8>(n, c);
        for (int s = 0; s < count; s++) {
            float y[4][4];
            biases(y, w32 + BQKV + s * SLICE, l.t);
            await(bars + s, 0);
            begin();
#pragma unroll
            for (int k = 0; k < 8; k++) narrow<0>(y, n[k], rows + s * (PIECE / 8) + k * 2 * SLICE);
            close();
            finished<0>();
            u32 out[2][4];
            pack<2>(out, y);
            store<2>(qkv, out, s * SLICE, 3 * D, l);
        }
    }
}

// mid = x + drop(mixed Wo^T + b); y = mid + drop(gelu(LN(mid) W1^T + b) W2^T + b)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mlp_forward(
    const u16* __restrict__ mixed, const Residual* __restrict__ x, const u16* __restrict__ w16,
    const float* __restrict__ w32, const long long* __restrict__ seed, Residual* mid, Residual* y, int M, int model, int layer, int site) {
    extern __shared__ __align__(128) u16 shared[];  // RING pairs (W1's slice s + 1, W2's slice s); Wo; W1's slice 0
    __shared__ u64 bars[2 * RING + 1];
    u16* whole = shared + RING * 2 * PIECE;
    const long long weights = (long long)blockIdx.y * model + layer;
    w16 += weights, w32 += weights;
    const u32 dice = DROP > 0 ? stream(seed, ((site + 64) << 24) + blockIdx.y) : 0;
    const int count = HIDDEN / SLICE, blocks = (M + 16 * WARPS - 1) / (16 * WARPS);
    const int total = (blocks - blockIdx.x + gridDim.x - 1) / gridDim.x * count;  // pairs that pass through the ring
    Ring ring = ring_of(bars);
    prepare(bars + 2 * RING, 1);
    auto fetch = [&](int i, int slot) {
        const int s = i % count;
        expect(ring.full + slot, 2 * PIECE * 2);
        // After the last slice of W1 comes W2: harmless, never used.
        issue(ring.full + slot, shared + slot * 2 * PIECE, w16 + W1 + (s + 1) * PIECE, PIECE * 2);
        issue(ring.full + slot, shared + (slot * 2 + 1) * PIECE, w16 + W2 + s * PIECE, PIECE * 2);
    };
    if (threadIdx.x == 0) {
        expect(bars + 2 * RING, 5 * PIECE * 2);
        issue(bars + 2 * RING, whole, w16 + WO, 5 * PIECE * 2);  // W1 follows Wo
        for (int i = 0; i < RING && i < total; i++) fetch(i, i);
    }
    __shared__ float limit;
    if (threadIdx.x == 0) limit = 36;
    __syncthreads();
    const u64 rows = rows_down(shared, 0), columns = columns_down(shared + PIECE, 0);
    int i = 0;
    for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
        const Lane l = lane_of(M, block);
        Rows a;
        Tile c;
        load<8>(a, mixed, 0, D, l);
        hint(mixed, M, block + gridDim.x), hint(x, M, block + gridDim.x);
        clear(c);
        await(bars + 2 * RING, 0);
        begin();
#pragma unroll
        for (int k = 0; k < 8; k++) wide<0>(c, a[k], square_down(whole, k));
        close();
        finished<0>();
        add_bias(c, w32 + BO, l.t);
        dropout(c, dice, l);
        add(c, x, l);
        store(mid, c, l);
        normalise(c);
        scale_shift(c, w32 + GAIN2, w32 + SHIFT2, l.t);
        pack<8>(a, c);
        clear(c);
        float u[4][4], next[4][4];
        biases(u, w32 + B1, l.t);
        begin();
#pragma unroll
        for (int k = 0; k < 8; k++) narrow<0>(u, a[k], rows_down(whole + 4 * PIECE, k));
        close();
        finished<0>();
        for (int s = 0; s < count; s++) {
            biases(next, w32 + B1 + (s + 1 < count ? s + 1 : s) * SLICE, l.t);
            const u64 pair = ring.slot(i) * (2 * PIECE / 8);
            ring.refill(i, total, fetch);
            ring.ready(i);
            begin();  // the next slice's product runs while this one's gelu is computed
#pragma unroll
            for (int k = 0; k < 8; k++) narrow<0>(next, a[k], rows + pair + k * 2 * SLICE);
            close();
            const float most = later(&limit);
            u32 h[2][4];
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) u[j][e] *= normal_cdf(u[j][e], most);
            pack<2>(h, u);
            begin();
#pragma unroll
            for (int k = 0; k < 2; k++) wide<0>(c, h[k], columns + pair + k * 2 * D);
            close();
            finished<0>();
            ring.leave(i++);
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) u[j][e] = next[j][e];
        }
        add_bias(c, w32 + B2, l.t);
        dropout(c, dice ^ 0x5BD1E995u, l);
        add(c, mid, l);  // read back by the lane that wrote it
        store(y, c, l);
    }
}

// Gradients at mid and at the mixed values; what the weights' gradients need is stored in bf16.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mlp_backward(
    const float* dy, const float* mid, const u16* w16, const float* w32, const long long* seed, float* dmid, u16* dmixed, u16* hidden, u16* dhidden, u16* n2, u16* dstep1,
    u16* dstep2, float* grads, int M, int model, int layer, int site) {
    // RING pairs (W1's slice b, W2's slice b - 1), later Wo; each warpgroup's cells.
    extern __shared__ __align__(128) u16 shared[];
    __shared__ u64 bars[2 * RING + 1];
    u16 *n = shared + RING * 2 * PIECE + (threadIdx.x >> 7) * 2 * GROUP, *d = n + GROUP;
    const Lane l = lane_of(M, blockIdx.x);
    const long long weights = (long long)blockIdx.y * model + layer;
    w16 += weights, w32 += weights, grads += weights;
    const u32 dice = DROP > 0 ? stream(seed, ((site + 64) << 24) + blockIdx.y) : 0;
    const int count = HIDDEN / SLICE;
    Ring ring = ring_of(bars);
    prepare(bars + 2 * RING, 1);
    auto fetch = [&](int b, int slot) {
        expect(ring.full + slot, (b == 0 ? 1 : 2) * PIECE * 2);
        // After the last slice of W1 comes W2: harmless, its product is never used.
        issue(ring.full + slot, shared + slot * 2 * PIECE, w16 + W1 + b * PIECE, PIECE * 2);
        if (b > 0) issue(ring.full + slot, shared + (slot * 2 + 1) * PIECE, w16 + W2 + (b - 1) * PIECE, PIECE * 2);
    };
    if (threadIdx.x == 0)
        for (int b = 0; b < RING && b <= count; b++) fetch(b, b);
    Tile c;
    {
        Rows a;
        load(c, mid, l);
        normalise(c);
        scale_shift(c, w32 + GAIN2, w32 + SHIFT2, l.t);
        pack<8>(a, c);
        store<8>(n2, a, 0, D, l);
        put(n, a, l);
        load(c, dy, l);
        dropout(c, dice ^ 0x5BD1E995u, l);
        pack<8>(a, c);
        store<8>(dstep2, a, 0, D, l);
        put(d, a, l);
        show();
    }
    clear(c);
    const u64 down = rows_down(shared, 0), across = rows_across(shared, 0);
    const u64 columns = columns_across(shared + PIECE, 0), cells = cells_at(n, 0), dcells = cells_at(d, 0);
    float u[4][4], dg[4][4], next[4][4];
    biases(u, w32 + B1, l.t);
    __shared__ float limit;
    if (threadIdx.x == 0) limit = 36;
    __syncthreads();
    ring.ready(0);
    begin();
#pragma unroll
    for (int k = 0; k < 8; k++) narrow<0, true>(u, cells + k * 2 * 64, down + k * 2 * SLICE);
    close();
    finished<0>();
    for (int s = 0; s < count; s++) {
        biases(next, w32 + B1 + (s + 1 < count ? s + 1 : s) * SLICE, l.t);
        const u64 after = ring.slot(s + 1) * (2 * PIECE / 8);
        ring.refill(s, count + 1, fetch);
        ring.ready(s + 1);
        begin();
        narrow<1, false>(dg, dcells, columns + after);
#pragma unroll
        for (int k = 1; k < 8; k++) narrow<1, true>(dg, dcells + k * 2 * 64, columns + after + k * 16);
        close();
#pragma unroll
        for (int k = 0; k < 8; k++)
            narrow<0, true>(next, cells + k * 2 * 64, down + after + k * 2 * SLICE);
        close();
        const float most = later(&limit);
        u32 h[2][4], dh[2][4];
        float slope[4][4];
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float cdf = normal_cdf(u[j][e], most);
                slope[j][e] = gelu_slope(u[j][e], cdf);
                u[j][e] *= cdf;
            }
        pack<2>(h, u);
        store<2>(hidden, h, s * SLICE, HIDDEN, l);
        finished<1>();
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) dg[j][e] *= slope[j][e];
        pack<2>(dh, dg);
        begin();
#pragma unroll
        for (int k = 0; k < 2; k++) wide<1>(c, dh[k], across + ring.slot(s) * (2 * PIECE / 8) + k * 16);
        close();
        store<2>(dhidden, dh, s * SLICE, HIDDEN, l);
        finished<0>();
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) u[j][e] = next[j][e];
        ring.leave(s);
    }
    __syncthreads();
    if (threadIdx.x == 0) expect(bars + 2 * RING, 4 * PIECE * 2), issue(bars + 2 * RING, shared, w16 + WO, 4 * PIECE * 2);
    Tile unit;
    load(unit, mid, l);  // again: registers are scarce in the loop
    const float2 rstd = normalise(unit);
    norm_gradients(grads + GAIN2, grads + SHIFT2, c, unit, shared + RING * 2 * PIECE, l);
    norm_backward(c, unit, rstd, w32 + GAIN2, l.t);
    add(c, dy, l);
    store(dmid, c, l);
    dropout(c, dice, l);
    Rows a;
    pack<8>(a, c);
    store<8>(dstep1, a, 0, D, l);
    clear(c);
    await(bars + 2 * RING, 0);
    begin();
#pragma unroll
    for (int k = 0; k < 8; k++) wide<1>(c, a[k], square_across(shared, k));
    close();
    finished<0>();
    pack<8>(a, c);
    store<8>(dmixed, a, 0, D, l);
}

// dx = dmid + LN'(dqkv Wqkv)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) qkv_backward(
    const u16* dqkv, const float* dmid, const float* x, const u16* w16, const float* w32, float* dx, u16* n1, float* grads, int M, int model, int layer) {
    extern __shared__ __align__(128) u16 shared[];  // RING slices; room for the norm's sums
    __shared__ u64 bars[2 * RING];
    const Lane l = lane_of(M, blockIdx.x);
    const long long weights = (long long)blockIdx.y * model + layer;
    w16 += weights + WQKV, w32 += weights, grads += weights;
    const int count = 3 * D / SLICE;
    Ring ring = ring_of(bars);
    auto fetch = [&](int s, int slot) {
        expect(ring.full + slot, PIECE * 2);
        issue(ring.full + slot, shared + slot * PIECE, w16 + s * PIECE, PIECE * 2);
    };
    if (threadIdx.x == 0)
        for (int s = 0; s < RING; s++) fetch(s, s);
    Tile c;
    clear(c);
    u32 d[2][4], ahead[2][4] = {};
    load<2>(d, dqkv, 0, 3 * D, l);
    const u64 across = rows_across(shared, 0);
    for (int s = 0; s < count; s++) {
        if (s + 1 < count) load<2>(ahead, dqkv, (s + 1) * SLICE, 3 * D, l);
        ring.refill(s, count, fetch);
        ring.ready(s);
        begin();
#pragma unroll
        for (int k = 0; k < 2; k++) wide<1>(c, d[k], across + ring.slot(s) * (PIECE / 8) + k * 16);
        close();
        finished<0>();
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int e = 0; e < 4; e++) d[k][e] = ahead[k][e];
        ring.leave(s);
    }
    Tile unit;
    load(unit, x, l);
    const float2 rstd = normalise(unit);
    norm_gradients(grads + GAIN1, grads + SHIFT1, c, unit, shared + RING * PIECE, l);
    norm_backward(c, unit, rstd, w32 + GAIN1, l.t);
    add(c, dmid, l);
    store(dx, c, l);
    scale_shift(unit, w32 + GAIN1, w32 + SHIFT1, l.t);
    Rows n;
    pack<8>(n, unit);
    store<8>(n1, n, 0, D, l);
}

// The network's two ends, for sampling. x = symbols We^T + base[cell], base holding place, time and bias; one row a board.
extern "C" __global__ void __launch_bounds__(THREADS, 1) embed(
    const float* __restrict__ symbols, const float* __restrict__ weight, const float* __restrict__ base, Residual* __restrict__ x,
    int M, int cells, int dim) {
    const int g = threadIdx.x / 4 % 8, t = threadIdx.x % 4, blocks = (M + 16 * WARPS - 1) / (16 * WARPS);
    u32 w[16][2];
    auto pair = [&](const float* row, int k) { return pack(k < dim ? row[k] : 0, k + 1 < dim ? row[k + 1] : 0); };
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) w[j][h] = pair(weight + (j * 8 + g) * dim, h * 8 + 2 * t);
    for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
        const Lane l = lane_of(M, block);
        const float *s0 = symbols + (long long)l.row0 * dim, *s1 = s0 + 8 * dim;
        const u32 a[4] = {l.in0 ? pair(s0, 2 * t) : 0, l.in1 ? pair(s1, 2 * t) : 0,
                          l.in0 ? pair(s0, 8 + 2 * t) : 0, l.in1 ? pair(s1, 8 + 2 * t) : 0};
        const float *base0 = base + l.row0 % cells * D + 2 * t, *base1 = base + (l.row0 + 8) % cells * D + 2 * t;
        Tile c;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            const float2 b0 = *(const float2*)(base0 + j * 8), b1 = *(const float2*)(base1 + j * 8);
            c[j][0] = b0.x, c[j][1] = b0.y, c[j][2] = b1.x, c[j][3] = b1.y;
            mma(c[j], a, w[j][0], w[j][1]);
        }
        store(x, c, l);
    }
}

// out = LN(x) Wh^T + b, fp32, one row a cell
extern "C" __global__ void __launch_bounds__(THREADS, 1) head(
    const Residual* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ shift,
    const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ out, int M, int dim) {
    const int g = threadIdx.x / 4 % 8, t = threadIdx.x % 4, blocks = (M + 16 * WARPS - 1) / (16 * WARPS);
    u32 w[2][8][2];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const float2 v = n * 8 + g < dim ? *(const float2*)(weight + (n * 8 + g) * D + k * 8 + 2 * t) : make_float2(0, 0);
            w[n][k / 2][k % 2] = pack(v.x, v.y);
        }
    for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
        const Lane l = lane_of(M, block);
        Tile c;
        Rows a;
        load(c, x, l);
        normalise(c);
        scale_shift(c, gain, shift, t);
        pack<8>(a, c);
        float y[2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int k = 0; k < 8; k++) mma(y[n], a[k], w[n][k][0], w[n][k][1]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int column = n * 8 + 2 * t + (e & 1);
                if (column < dim && (e < 2 ? l.in0 : l.in1))
                    out[(long long)(l.row0 + (e >> 1) * 8) * dim + column] = y[n][e] + bias[column];
            }
        }
    }
}
