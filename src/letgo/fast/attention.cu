// Self-attention of small boards: head size 16, bf16 in and out, fp32 inside, weights never stored.
//
// A block has a (board, head) at a time, a warp 16 query rows (and, backward, 16 keys). A head of size 16 is exactly
// one k-step of mma.m16n8k16, so a row tile's products with all keys stay in registers. The backward pass recomputes
// the weights twice, once by rows (dQ) and once by columns (dK, dV): no atomics, no transposition through memory.
// Dropout keeps no mask: four weights, of rows and columns eight apart, share a hash of (seed, board, head, row, column).
//
// Defined by the caller: N cells, HEADS, DROP (dropout probability in 1/65536). `boards` are those of one model.

#define SIZE 16
#define WIDTH (HEADS * SIZE)
#define TILES ((N + 15) / 16)
#define CHUNK (TILES <= 8 ? TILES : 4)                    // tiles of 16 keys whose logits are held at a time
#define PADDED ((TILES + CHUNK - 1) / CHUNK * CHUNK * 16)  // keys in shared memory, a whole number of chunks
#define WARPS (TILES <= 16 ? TILES : 16)
#define AHEAD (TILES <= 8)                                 // boards so small that the next one is fetched meanwhile
#define BUFFER ((AHEAD ? 3 : 2) * PADDED * STRIDE)         // keys and values, then queries too
#define RESIDENT (AHEAD ? 30 / WARPS : 1)                  // blocks of the forward pass on a multiprocessor
#define STRIDE 24  // elements between rows in shared memory: 48 bytes, free of bank conflicts for ldmatrix
#define LOGIT (0.25f * 1.4426950408889634f)                // 1 / sqrt(16), and exp2 instead of exp
#define UPSCALE (65536.0f / (65536 - DROP))
#define ONES 0x3F803F80u                                   // 1 and 1 in bf16

// Four 8x8 matrices. By rows of 16: an A operand, or (transposed) a B operand summed over those rows.
__device__ __forceinline__ void load_rows(u32* f, const u16* tile, int lane) {
    u32 at = (u32)__cvta_generic_to_shared(tile + (lane & 15) * STRIDE + (lane >> 4) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}
__device__ __forceinline__ void load_transposed(u32* f, const u16* tile, int lane) {
    u32 at = (u32)__cvta_generic_to_shared(tile + (lane & 15) * STRIDE + (lane >> 4) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}
// A B operand summed over the head: columns 0-7 from f[0], f[1], columns 8-15 from f[2], f[3].
__device__ __forceinline__ void load_columns(u32* f, const u16* tile, int lane) {
    int row = (lane & 7) + (lane >> 4) * 8, column = (lane >> 3 & 1) * 8;
    u32 at = (u32)__cvta_generic_to_shared(tile + row * STRIDE + column);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}

// Rows of one head into shared memory, zeros beyond the board. `column` is the head's first of `width`.
__device__ __forceinline__ void stage(u16* tile, const u16* from, int first, int column, int width, int rows) {
#pragma unroll
    for (int turn = 0; turn * WARPS * 32 < rows * 2; turn++) {  // once where a board has at most 16 tiles
        const int i = turn * WARPS * 32 + threadIdx.x, row = (i >> 4) * 8 + (i & 7), half = i & 8;
        if (i >= rows * 2) break;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (row < N) value = *(const uint4*)(from + place(first + row, column + half, width));
        *(uint4*)(tile + row * STRIDE + half) = value;
    }
}

// Queries, keys and values of a head, under way until `fetched`: every thread has one piece of each.
__device__ __forceinline__ void fetch(u16* keys, const u16* qkv, int first, int head) {
    const int i = threadIdx.x, row = (i >> 4) * 8 + (i & 7), half = i & 8;
    const u16* from = qkv + place(first + min(row, N - 1), head * SIZE + half, 3 * WIDTH);
    const u32 to = address(keys + row * STRIDE + half), bytes = row < N ? 16 : 0;
#pragma unroll
    for (int part = 0; part < 3; part++)  // in memory queries come first, here last
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + (part + 2) % 3 * (PADDED * STRIDE * 2)),
                     "l"(from + part * WIDTH * 8), "r"(bytes) : "memory");
}
__device__ __forceinline__ void fetched() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

// Where a board's cells begin: each model's boards with a new core.
__device__ __forceinline__ int first_cell(int board, int boards) {
    return board / boards * padded(boards * N) + board % boards * N;
}

// Blocks go on to other (board, head), and fetch the next one meanwhile; without AHEAD they have one each.
extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT) attention_forward(
    const u16* __restrict__ qkv, const long long* __restrict__ seed, u16* __restrict__ out, float* __restrict__ lse,
    int boards, int items, int site) {
    extern __shared__ __align__(16) u16 shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int buffer = 0, next = first_cell(blockIdx.x / HEADS, boards);
    if (AHEAD) {
        fetch(shared, qkv, next, blockIdx.x % HEADS);
    } else {
        stage(shared, qkv, next, blockIdx.x % HEADS * SIZE + WIDTH, 3 * WIDTH, PADDED);
        stage(shared + PADDED * STRIDE, qkv, next, blockIdx.x % HEADS * SIZE + 2 * WIDTH, 3 * WIDTH, PADDED);
    }
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        u16 *keys = shared + buffer * BUFFER, *values = keys + PADDED * STRIDE;
        const int first = next, column = item % HEADS * SIZE;
        const u32 dice = DROP > 0 ? stream(seed, (site << 24) + item) : 0;
        fetched();
        if (AHEAD && item + (int)gridDim.x < items) {
            next = first_cell((item + gridDim.x) / HEADS, boards);
            buffer ^= 1;
            fetch(shared + buffer * BUFFER, qkv, next, (item + gridDim.x) % HEADS);
        }
        for (int tile = warp; tile < TILES; tile += WARPS) {
            const int row0 = tile * 16 + g, row1 = row0 + 8;
            u32 q[4];
            if (AHEAD) {
                load_rows(q, keys + (2 * PADDED + tile * 16) * STRIDE, lane);
            } else {
                const u16* q0 = qkv + place(first + min(row0, N - 1), column + 2 * t, 3 * WIDTH);
                const u16* q1 = qkv + place(first + min(row1, N - 1), column + 2 * t, 3 * WIDTH);
                q[0] = *(const u32*)q0, q[1] = *(const u32*)q1, q[2] = *(const u32*)(q0 + 64), q[3] = *(const u32*)(q1 + 64);
            }
            float o[2][4] = {}, total[4] = {}, top0 = -1e30f, top1 = -1e30f;
            for (int chunk = 0; chunk < PADDED / 16; chunk += CHUNK) {
                float s[2 * CHUNK][4];
#pragma unroll
                for (int j = 0; j < CHUNK; j++) {
                    u32 k[4];
                    load_columns(k, keys + (chunk + j) * 16 * STRIDE, lane);
#pragma unroll
                    for (int h = 0; h < 2; h++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) s[2 * j + h][e] = 0;
                        if (((chunk + j) * 2 + h) * 8 < N) mma(s[2 * j + h], q, k[2 * h], k[2 * h + 1]);
                    }
                }
                float new0 = top0, new1 = top1;
#pragma unroll
                for (int j = 0; j < 2 * CHUNK; j++) {
                    if ((chunk * 2 + j) * 8 >= N) continue;  // nothing but padding
                    const int key = (chunk * 2 + j) * 8 + 2 * t;
                    if (CHUNK == TILES || (chunk + CHUNK) * 16 > N) {
#pragma unroll
                        for (int e = 0; e < 4; e++) s[j][e] = key + (e & 1) < N ? s[j][e] : -1e30f;
                    }
                    new0 = fmaxf(new0, fmaxf(s[j][0], s[j][1]));
                    new1 = fmaxf(new1, fmaxf(s[j][2], s[j][3]));
                }
#pragma unroll
                for (int step = 1; step <= 2; step *= 2) {
                    new0 = fmaxf(new0, __shfl_xor_sync(~0u, new0, step));
                    new1 = fmaxf(new1, __shfl_xor_sync(~0u, new1, step));
                }
                const float keep0 = exp2_fast((top0 - new0) * LOGIT), keep1 = exp2_fast((top1 - new1) * LOGIT);
                const float less0 = new0 * LOGIT, less1 = new1 * LOGIT;
                top0 = new0, top1 = new1;
#pragma unroll
                for (int h = 0; h < 2; h++) o[h][0] *= keep0, o[h][1] *= keep0, o[h][2] *= keep1, o[h][3] *= keep1;
                total[0] *= keep0, total[2] *= keep1;
#pragma unroll
                for (int j = 0; j < 2 * CHUNK; j++) {
                    if ((chunk * 2 + j) * 8 >= N) continue;  // its weights stay 0
                    s[j][0] = exp2_fast(s[j][0] * LOGIT - less0), s[j][1] = exp2_fast(s[j][1] * LOGIT - less0);
                    s[j][2] = exp2_fast(s[j][2] * LOGIT - less1), s[j][3] = exp2_fast(s[j][3] * LOGIT - less1);
                }
#pragma unroll
                for (int j = 0; j < CHUNK; j++) {
                    u32 p[4] = {pack(s[2 * j][0], s[2 * j][1]), pack(s[2 * j][2], s[2 * j][3]),
                                pack(s[2 * j + 1][0], s[2 * j + 1][1]), pack(s[2 * j + 1][2], s[2 * j + 1][3])};
                    mma(total, p, ONES, ONES);  // the tensor cores add up the rows
                    if (DROP > 0) {
                        const u32 place = dice + row0 * ROW_STEP + ((chunk + j) * 16 + 2 * t) * COLUMN_STEP;
                        const u32 even = scrambled(place), odd = scrambled(place + COLUMN_STEP);
#pragma unroll
                        for (int m = 0; m < 4; m++) {
                            if (dropped_of_four(even, m)) p[m] &= 0xffff0000u;
                            if (dropped_of_four(odd, m)) p[m] &= 0x0000ffffu;
                        }
                    }
                    u32 v[4];
                    load_transposed(v, values + (chunk + j) * 16 * STRIDE, lane);
                    mma(o[0], p, v[0], v[1]);
                    mma(o[1], p, v[2], v[3]);
                }
            }
            const float sum0 = total[0], sum1 = total[2];
            const float scale0 = UPSCALE / sum0, scale1 = UPSCALE / sum1;
            u16* to = out + place(first + row0, column + 2 * t, WIDTH);
            if (row0 < N) {
                *(u32*)to = pack(o[0][0] * scale0, o[0][1] * scale0);
                *(u32*)(to + 64) = pack(o[1][0] * scale0, o[1][1] * scale0);
                if (t == 0) lse[(long long)item * N + row0] = top0 * LOGIT + __log2f(sum0);
            }
            if (row1 < N) {
                *(u32*)(to + 8 * WIDTH) = pack(o[0][2] * scale1, o[0][3] * scale1);
                *(u32*)(to + 8 * WIDTH + 64) = pack(o[1][2] * scale1, o[1][3] * scale1);
                if (t == 0) lse[(long long)item * N + row1] = top1 * LOGIT + __log2f(sum1);
            }
        }
    }
}

// Backward all weights are UPSCALE times as large, and so the gradients that they meet are as the forward pass's output has them.
__device__ __forceinline__ float weight(float product, float top) { return exp2_fast(product * LOGIT - top); }
// Never far above 1: padding keys have logit 0, which may lie far above all true ones; inf * 0 would be NaN.
__device__ __forceinline__ float bounded_weight(float product, float top) {
    return exp2_fast(fminf(product * LOGIT - top, 1.0f));
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) attention_backward(
    const u16* __restrict__ qkv, const long long* __restrict__ seed, const u16* __restrict__ out,
    const float* __restrict__ lse, const u16* __restrict__ dout, u16* __restrict__ dqkv,
    int boards, int site) {
    extern __shared__ __align__(16) u16 shared[];
    const int rows = TILES * 16;
    u16 *queries = shared, *keys = queries + rows * STRIDE, *values = keys + rows * STRIDE;
    u16* grads = values + rows * STRIDE;
    float* tops = (float*)(grads + rows * STRIDE);  // log-sum-exp of each query row
    float* dots = tops + rows;                      // sum of out * dout of each query row
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int first = first_cell(blockIdx.x / HEADS, boards), column = blockIdx.x % HEADS * SIZE;
    stage(queries, qkv, first, column, 3 * WIDTH, rows);
    stage(keys, qkv, first, column + WIDTH, 3 * WIDTH, rows);
    stage(values, qkv, first, column + 2 * WIDTH, 3 * WIDTH, rows);
    stage(grads, dout, first, column, WIDTH, rows);
    for (int row = threadIdx.x; row < rows; row += WARPS * 32) {
        float dot = 0, top = 1e30f;  // beyond the board every weight is exp2(-1e30) = 0
        if (row < N) {
            const long long at = place(first + row, column, WIDTH);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 a = *(const uint4*)(out + at + half * 64), b = *(const uint4*)(dout + at + half * 64);
                dot += low(a.x) * low(b.x) + high(a.x) * high(b.x) + low(a.y) * low(b.y) + high(a.y) * high(b.y);
                dot += low(a.z) * low(b.z) + high(a.z) * high(b.z) + low(a.w) * low(b.w) + high(a.w) * high(b.w);
            }
            top = lse[(long long)blockIdx.x * N + row] - __log2f(UPSCALE);
        }
        tops[row] = top, dots[row] = dot / UPSCALE;
    }
    const u32 dice = DROP > 0 ? stream(seed, (site << 24) + blockIdx.x) : 0;
    __syncthreads();
    for (int tile = warp; tile < TILES; tile += WARPS) {  // by rows: dQ = dS K
        const int row0 = tile * 16 + g, row1 = row0 + 8;
        u32 q[4], d[4];
        load_rows(q, queries + tile * 16 * STRIDE, lane);
        load_rows(d, grads + tile * 16 * STRIDE, lane);
        const float top0 = tops[row0], top1 = tops[row1], dot0 = dots[row0], dot1 = dots[row1];
        float dq[2][4] = {};
#pragma unroll 2
        for (int j = 0; j < TILES; j++) {
            u32 k[4], v[4], ds[4];
            load_columns(k, keys + j * 16 * STRIDE, lane);
            load_columns(v, values + j * 16 * STRIDE, lane);
            u32 numbers[2];
            if (DROP > 0) {
                const u32 place = dice + row0 * ROW_STEP + (j * 16 + 2 * t) * COLUMN_STEP;
                numbers[0] = scrambled(place), numbers[1] = scrambled(place + COLUMN_STEP);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float s[4] = {}, dp[4] = {};
                mma(s, q, k[2 * h], k[2 * h + 1]);
                mma(dp, d, v[2 * h], v[2 * h + 1]);
                float p[4] = {bounded_weight(s[0], top0), bounded_weight(s[1], top0),
                              bounded_weight(s[2], top1), bounded_weight(s[3], top1)};
#pragma unroll
                for (int e = 0; DROP > 0 && e < 4; e++)
                    dp[e] = dropped_of_four(numbers[e & 1], (e >> 1) + 2 * h) ? 0 : dp[e];
                ds[2 * h] = pack(p[0] * (dp[0] - dot0), p[1] * (dp[1] - dot0));
                ds[2 * h + 1] = pack(p[2] * (dp[2] - dot1), p[3] * (dp[3] - dot1));
            }
            load_transposed(k, keys + j * 16 * STRIDE, lane);
            mma(dq[0], ds, k[0], k[1]);
            mma(dq[1], ds, k[2], k[3]);
        }
        u16* to = dqkv + place(first + row0, column + 2 * t, 3 * WIDTH);
        if (row0 < N) {
            *(u32*)to = pack(dq[0][0] * 0.25f, dq[0][1] * 0.25f);
            *(u32*)(to + 64) = pack(dq[1][0] * 0.25f, dq[1][1] * 0.25f);
        }
        if (row1 < N) {
            *(u32*)(to + 24 * WIDTH) = pack(dq[0][2] * 0.25f, dq[0][3] * 0.25f);
            *(u32*)(to + 24 * WIDTH + 64) = pack(dq[1][2] * 0.25f, dq[1][3] * 0.25f);
        }
    }
    for (int tile = warp; tile < TILES; tile += WARPS) {  // by columns: dV = P^T dO, dK = dS^T Q
        const int row0 = tile * 16 + g;  // keys row0 and row0 + 8
        u32 k[4], v[4];
        load_rows(k, keys + tile * 16 * STRIDE, lane);
        load_rows(v, values + tile * 16 * STRIDE, lane);
        float dk[2][4] = {}, dv[2][4] = {};
#pragma unroll 2
        for (int j = 0; j < TILES; j++) {
            u32 q[4], d[4], p[4], ds[4];
            load_columns(q, queries + j * 16 * STRIDE, lane);
            load_columns(d, grads + j * 16 * STRIDE, lane);
            u32 numbers[2];
            if (DROP > 0) {
                const u32 place = dice + (j * 16 + 2 * t) * ROW_STEP + row0 * COLUMN_STEP;
                numbers[0] = scrambled(place), numbers[1] = scrambled(place + ROW_STEP);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int query = j * 16 + h * 8 + 2 * t;
                float s[4] = {}, dp[4] = {};
                mma(s, k, q[2 * h], q[2 * h + 1]);
                mma(dp, v, d[2 * h], d[2 * h + 1]);
                const float2 top = *(const float2*)(tops + query), dot = *(const float2*)(dots + query);
                float w[4] = {weight(s[0], top.x), weight(s[1], top.y), weight(s[2], top.x), weight(s[3], top.y)};
                float used[4] = {w[0], w[1], w[2], w[3]};
#pragma unroll
                for (int e = 0; DROP > 0 && e < 4; e++) {
                    const bool gone = dropped_of_four(numbers[e & 1], h + 2 * (e >> 1));
                    used[e] = gone ? 0 : w[e];
                    dp[e] = gone ? 0 : dp[e];
                }
                p[2 * h] = pack(used[0], used[1]), p[2 * h + 1] = pack(used[2], used[3]);
                ds[2 * h] = pack(w[0] * (dp[0] - dot.x), w[1] * (dp[1] - dot.y));
                ds[2 * h + 1] = pack(w[2] * (dp[2] - dot.x), w[3] * (dp[3] - dot.y));
            }
            load_transposed(q, queries + j * 16 * STRIDE, lane);
            load_transposed(d, grads + j * 16 * STRIDE, lane);
            mma(dk[0], ds, q[0], q[1]);
            mma(dk[1], ds, q[2], q[3]);
            mma(dv[0], p, d[0], d[1]);
            mma(dv[1], p, d[2], d[3]);
        }
        u16* to = dqkv + place(first + row0, column + WIDTH + 2 * t, 3 * WIDTH);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (row0 + half * 8 >= N) break;
            u16* here = to + half * 24 * WIDTH;
            *(u32*)here = pack(dk[0][2 * half] * 0.25f, dk[0][2 * half + 1] * 0.25f);
            *(u32*)(here + 64) = pack(dk[1][2 * half] * 0.25f, dk[1][2 * half + 1] * 0.25f);
            *(u32*)(here + 8 * WIDTH) = pack(dv[0][2 * half], dv[0][2 * half + 1]);
            *(u32*)(here + 8 * WIDTH + 64) = pack(dv[1][2 * half], dv[1][2 * half + 1]);
        }
    }
}
