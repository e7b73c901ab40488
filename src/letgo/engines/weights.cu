// dW = dOut^T In and db = sum of dOut for the four matrices of a layer (Hopper: wgmma). A block of two warpgroups owns a
// 128 x 128 tile of one matrix and a range of cells; the ranges' sums meet in fp32 atomics.
//
// Defined by the caller: HIDDEN. The width is 128.

#define DEEP 64                  // cells of one stage
#define TILE (DEEP * D)          // elements of one operand's stage
#define RING 3
#define MANY (HIDDEN / D)

// 128 features of DEEP cells, as cores: one copy of 2 KiB for every eight cells.
__device__ __forceinline__ void fetch(u64* bar, u16* to, const u16* from, int column, int width, long long cell, int count) {
    for (int i = 0; i < count; i++) issue(bar, to + i * 8 * D, from + place(cell + i * 8, column, width), 8 * D * 2);
}

// 64 rows of dOut^T In, 16 cells deep.
__device__ __forceinline__ void product(float (*c)[4], u64 a, u64 b) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " D64
                 ", %64, %65, p, 1, 1, 1, 1;}"
                 : FOUR(c[0]), FOUR(c[1]), FOUR(c[2]), FOUR(c[3]), FOUR(c[4]), FOUR(c[5]), FOUR(c[6]), FOUR(c[7]),
                   FOUR(c[8]), FOUR(c[9]), FOUR(c[10]), FOUR(c[11]), FOUR(c[12]), FOUR(c[13]), FOUR(c[14]), FOUR(c[15])
                 : "l"(a), "l"(b));
}
// The same times a matrix of ones: sums over cells.
__device__ __forceinline__ void sum_rows(float* c, u64 a, u64 ones) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}"
                 ", %4, %5, p, 1, 1, 1, 1;}" : FOUR(c) : "l"(a), "l"(ones));
}

__device__ __forceinline__ void add2(float* to, float a, float b) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
}

extern "C" __global__ void __launch_bounds__(256, 2) weight_gradients(
    const u16* n1, const u16* dqkv, const u16* mixed, const u16* dstep1, const u16* n2, const u16* dhidden,
    const u16* hidden, const u16* dstep2, float* grads, int M, int model, int layer, int chunk) {
    extern __shared__ __align__(128) u16 shared[];  // RING pairs (In, dOut), then a core pair of ones
    __shared__ u64 bars[RING];
    const int tile = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const u16 *in = n1, *out = dqkv;
    int in_width = D, in_at = 0, out_width = 3 * D, out_at = tile * D, weight = WQKV, bias = BQKV;
    if (tile == 3) in = mixed, out = dstep1, out_width = D, out_at = 0, weight = WO, bias = BO;
    else if (tile >= 4 + MANY)
        in = hidden, in_width = HIDDEN, in_at = (tile - 4 - MANY) * D, out = dstep2, out_width = D, out_at = 0, weight = W2, bias = B2;
    else if (tile >= 4) in = n2, out = dhidden, out_width = HIDDEN, out_at = (tile - 4) * D, weight = W1, bias = B1;
    const long long first = (long long)blockIdx.z * padded(M);
    grads += (long long)blockIdx.z * model + layer;
    const int start = blockIdx.y * chunk, end = min(start + chunk, M), count = (end - start + DEEP - 1) / DEEP;
    u16* ones = shared + RING * 2 * TILE;
    if (threadIdx.x < 64) ((u32*)ones)[threadIdx.x] = 0x3F803F80u;
    show();
    prepare(bars, RING);

    auto refill = [&](int s) {  // by one thread
        const int at = s % RING, cell = start + s * DEEP, eights = min(DEEP, end - cell + 7) / 8;
        u16* to = shared + at * 2 * TILE;
        expect(bars + at, 2 * eights * 8 * D * 2);
        fetch(bars + at, to, in, in_at, in_width, first + cell, eights);
        fetch(bars + at, to + TILE, out, out_at, out_width, first + cell, eights);
    };
    if (threadIdx.x == 0)
        for (int s = 0; s < RING - 1 && s < count; s++) refill(s);

    float c[16][4] = {}, sums[4] = {};
    const bool biased = in_at == 0;
    const u64 from = cores(shared, 8 * D * 2, 128), to = cores(shared + TILE + (warp >> 2) * 64 * 8, 8 * D * 2, 128);
    const u64 unit = cores(ones, 128, 128);
    int at = 0, turn = 0;
    for (int s = 0; s < count; s++) {
        await(bars + at, turn);
        const int left = end - start - s * DEEP;
        if (left < DEEP) {  // the last cells: whatever lies beyond them counts as zero
            for (int i = threadIdx.x; i < DEEP * D; i += 256)
                if (i / (8 * D) * 8 + i / 8 % 8 >= left) shared[at * 2 * TILE + i] = shared[(at * 2 + 1) * TILE + i] = 0;
            show();
            __syncthreads();
        }
        begin();
#pragma unroll
        for (int k = 0; k < DEEP / 16; k++) {
            const u64 step = at * (2 * TILE / 8) + k * (2 * 8 * D / 8);
            product(c, to + step, from + step);
            if (biased) sum_rows(sums, to + step, unit);
        }
        close();
        finished<1>();
        __syncthreads();  // the stage before this one is free now
        if (threadIdx.x == 0 && s + RING - 1 < count) refill(s + RING - 1);
        if (++at == RING) at = 0, turn ^= 1;
    }
    finished<0>();
    const int row = out_at + warp * 16 + g;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float* here = grads + weight + (long long)row * in_width + in_at + j * 8 + 2 * t;
        add2(here, c[j][0], c[j][1]);
        add2(here + 8 * in_width, c[j][2], c[j][3]);
    }
    if (biased && t == 0) atomicAdd(grads + bias + row, sums[0]), atomicAdd(grads + bias + row + 8, sums[2]);
}
