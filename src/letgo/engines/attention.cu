// Self-attention of small boards: head size 16, bf16 in and out, fp32 inside, weights never stored.
//
// A block has a (board, head) at a time, a warp 16 query rows (backward, 16 or 32 keys). A head of size 16 is exactly
// one k-step of mma.m16n8k16, so a row tile's products with a chunk of keys stay in registers. The backward pass computes
// the weights once more, by columns: a warp keeps its keys' dK and dV and adds to the queries' dQ in shared memory, where no
// two warps meet. No atomics, no transposition through memory.
// Dropout keeps no mask: four weights, of rows and columns eight apart, share a hash of (seed, board, head, row, column).
//
// Defined by the caller: N cells, HEADS, DROP (dropout probability in 1/65536). `boards` are those of one model.

#define SIZE 16
#define WIDTH (HEADS * SIZE)
#define TILES ((N + 15) / 16)
#define PADDED (TILES * 16)                                // rows in shared memory
#define CHUNK (TILES <= 8 ? TILES : 4)                     // tiles of 16 keys whose logits are held at a time
#define WHOLE (N / (CHUNK * 16))                           // chunks without padding; REST keys come after them
#define REST (N - WHOLE * CHUNK * 16)
#define REST_TILES (REST > 0 ? (REST + 15) / 16 : 1)
#define WARPS (TILES <= 16 ? TILES : 16)
#define AHEAD (TILES <= 8)                                 // boards so small that the next one is fetched meanwhile
#define BUFFER ((AHEAD ? 3 : 2) * PADDED * STRIDE)         // keys and values, then queries too
#define RESIDENT (AHEAD ? 30 / WARPS : TILES <= 16 ? 1 : 2)  // blocks of the forward pass on a multiprocessor
#define STRIDE 24  // elements between rows in shared memory: 48 bytes, free of bank conflicts for ldmatrix
#define LOGIT (0.25f * 1.4426950408889634f)                // 1 / sqrt(16), and exp2 instead of exp
#define UPSCALE (65536.0f / (65536 - DROP))
#define ONES 0x3F803F80u                                   // 1 and 1 in bf16
#define SAFE 0x1p100f                                      // sums of weights that leave room for values

// Four 8x8 matrices of a tile. By rows of 16: an A operand, or (transposed) a B operand summed over those rows.
// By columns: a B operand summed over the head, columns 0-7 in f[0], f[1], columns 8-15 in f[2], f[3].
__device__ __forceinline__ int lane_rows(int lane) { return (lane & 15) * STRIDE + (lane >> 4) * 8; }
__device__ __forceinline__ int lane_columns(int lane) {
    return ((lane & 7) + (lane >> 4) * 8) * STRIDE + (lane >> 3 & 1) * 8;
}
__device__ __forceinline__ void load_matrices(u32* f, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}
__device__ __forceinline__ void load_turned(u32* f, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}
__device__ __forceinline__ void load_rows(u32* f, const u16* tile, int lane) {
    load_matrices(f, address(tile + lane_rows(lane)));
}
__device__ __forceinline__ void load_transposed(u32* f, const u16* tile, int lane) {
    load_turned(f, address(tile + lane_rows(lane)));
}
__device__ __forceinline__ void load_columns(u32* f, const u16* tile, int lane) {
    load_matrices(f, address(tile + lane_columns(lane)));
}

// An 8x8 matrix of bf16, held as `load_matrices` gives it, turned over.
__device__ __forceinline__ u32 transposed(u32 part) {
    u32 turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(part));
    return turned;
}

// A weight from its product and what its row is taken against: the largest logit so far, backward the log-sum-exp.
__device__ __forceinline__ float weight(float product, float top) { return exp2_fast(product * LOGIT - top); }

// Rows of one head into shared memory, zeros beyond the board. `column` is the head's first of `width`.
__device__ __forceinline__ void stage(u16* tile, const u16* from, int first, int column, int width, int rows, int threads) {
#pragma unroll
    for (int turn = 0; turn * threads < rows * 2; turn++) {  // once where a board has at most 16 tiles
        const int i = turn * threads + threadIdx.x, row = (i >> 4) * 8 + (i & 7), half = i & 8;
        if (i >= rows * 2) break;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (row < N) value = *(const uint4*)(from + place(first + row, column + half, width));
        *(uint4*)(tile + row * STRIDE + half) = value;
    }
}

// 16 bytes, under way until `copied`: the first `bytes` of them as they are, then zeros.
__device__ __forceinline__ void copy_async(u32 to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copied() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Queries, keys and values of a head, under way until `fetched`: every thread has one piece of each.
__device__ __forceinline__ void fetch(u16* keys, const u16* qkv, int first, int head) {
    const int i = threadIdx.x, row = (i >> 4) * 8 + (i & 7), half = i & 8;
    const u16* from = qkv + place(first + min(row, N - 1), head * SIZE + half, 3 * WIDTH);
    const u32 to = address(keys + row * STRIDE + half), bytes = row < N ? 16 : 0;
#pragma unroll
    for (int part = 0; part < 3; part++)  // in memory queries come first, here last
        copy_async(to + (part + 2) % 3 * (PADDED * STRIDE * 2), from + part * WIDTH * 8, bytes);
}
__device__ __forceinline__ void fetched() {
    copied();
    __syncthreads();
}

// Where a board's cells begin: each model's boards with a new core.
__device__ __forceinline__ int first_cell(int board, int boards) {
    return board / boards * padded(boards * N) + board % boards * N;
}

// What a warp keeps of its 16 query rows while it goes through the keys.
struct Rows {
    u32 q[4];
    float o[2][4], total[4], top0, top1;  // sums so far, of weights times values and of weights, and the largest products
    u32 place;                            // of the chunk's first weights, for dropout
};

// TRUE of COUNT tiles' keys, the others are padding. With LARGEST the largest logit is looked for, and sums so far are
// scaled down where a larger one comes up; without it the logits are taken against the largest so far, which overflows
// where one lies 127 above it.
template <int COUNT, int TRUE, bool LARGEST>
__device__ __forceinline__ void mix(Rows& r, const u16* keys, const u16* values, int lane) {
    float s[2 * COUNT][4] = {};
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        u32 k[4];
        load_columns(k, keys + j * 16 * STRIDE, lane);
        mma(s[2 * j], r.q, k[0], k[1]);
        if (j * 16 + 8 < TRUE) mma(s[2 * j + 1], r.q, k[2], k[3]);
    }
    if (TRUE % 8 > 0) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (TRUE / 8 * 8 + 2 * (lane & 3) + (e & 1) >= TRUE) s[TRUE / 8][e] = -1e30f;
    }
    if (LARGEST) {
        float new0 = r.top0, new1 = r.top1;
#pragma unroll
        for (int j = 0; j < 2 * COUNT && j * 8 < TRUE; j++) {
            new0 = fmaxf(new0, fmaxf(s[j][0], s[j][1]));
            new1 = fmaxf(new1, fmaxf(s[j][2], s[j][3]));
        }
#pragma unroll
        for (int step = 1; step <= 2; step *= 2) {
            new0 = fmaxf(new0, __shfl_xor_sync(~0u, new0, step));
            new1 = fmaxf(new1, __shfl_xor_sync(~0u, new1, step));
        }
        const float keep0 = exp2_fast((r.top0 - new0) * LOGIT), keep1 = exp2_fast((r.top1 - new1) * LOGIT);
        r.top0 = new0, r.top1 = new1;
#pragma unroll
        for (int h = 0; h < 2; h++) r.o[h][0] *= keep0, r.o[h][1] *= keep0, r.o[h][2] *= keep1, r.o[h][3] *= keep1;
        r.total[0] *= keep0, r.total[2] *= keep1;
    }
    const float less0 = r.top0 * LOGIT, less1 = r.top1 * LOGIT;
#pragma unroll
    for (int j = 0; j < 2 * COUNT && j * 8 < TRUE; j++) {  // weights of padding stay 0
        s[j][0] = weight(s[j][0], less0), s[j][1] = weight(s[j][1], less0);
        s[j][2] = weight(s[j][2], less1), s[j][3] = weight(s[j][3], less1);
    }
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        u32 p[4] = {pack(s[2 * j][0], s[2 * j][1]), pack(s[2 * j][2], s[2 * j][3]),
                    pack(s[2 * j + 1][0], s[2 * j + 1][1]), pack(s[2 * j + 1][2], s[2 * j + 1][3])};
        mma(r.total, p, ONES, ONES);  // the tensor cores add up the rows
        if (DROP > 0) {
            const u32 place = r.place + j * 16 * COLUMN_STEP;
            without_one(p, scrambled(place), 0xffff0000u);
            without_one(p, scrambled(place + COLUMN_STEP), 0x0000ffffu);
        }
        u32 v[4];
        load_transposed(v, values + j * 16 * STRIDE, lane);
        mma(r.o[0], p, v[0], v[1]);
        mma(r.o[1], p, v[2], v[3]);
    }
    r.place += COUNT * 16 * COLUMN_STEP;
}

// All keys. The largest logit of the first chunk stands for all chunks, unless CAREFUL; false where a later one lies so far
// above it that sums are no longer safe from infinity.
template <bool CAREFUL>
__device__ __forceinline__ bool mix_all(Rows& r, const u32* q, u32 place, const u16* keys, const u16* values, int lane) {
    r = Rows{{q[0], q[1], q[2], q[3]}};
    r.top0 = r.top1 = -1e30f, r.place = place;
    if (WHOLE > 0) mix<CHUNK, CHUNK * 16, true>(r, keys, values, lane);
    for (int chunk = 1; chunk < WHOLE; chunk++)
        mix<CHUNK, CHUNK * 16, CAREFUL>(r, keys + chunk * CHUNK * 16 * STRIDE, values + chunk * CHUNK * 16 * STRIDE, lane);
    if (REST > 0) mix<REST_TILES, REST, CAREFUL || WHOLE == 0>(r, keys + (N - REST) * STRIDE, values + (N - REST) * STRIDE, lane);
    return CAREFUL || WHOLE + (REST > 0) < 2 || !__any_sync(~0u, r.total[0] > SAFE || r.total[2] > SAFE);
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
        stage(shared, qkv, next, blockIdx.x % HEADS * SIZE + WIDTH, 3 * WIDTH, PADDED, WARPS * 32);
        stage(shared + PADDED * STRIDE, qkv, next, blockIdx.x % HEADS * SIZE + 2 * WIDTH, 3 * WIDTH, PADDED, WARPS * 32);
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
            const u32 place0 = DROP > 0 ? dice + row0 * ROW_STEP + 2 * t * COLUMN_STEP : 0;
            Rows r;
            if (!mix_all<false>(r, q, place0, keys, values, lane)) mix_all<true>(r, q, place0, keys, values, lane);
            const float sum0 = r.total[0], sum1 = r.total[2];
            const float scale0 = UPSCALE / sum0, scale1 = UPSCALE / sum1;
            u16* to = out + place(first + row0, column + 2 * t, WIDTH);
            if (row0 < N) {
                *(u32*)to = pack(r.o[0][0] * scale0, r.o[0][1] * scale0);
                *(u32*)(to + 64) = pack(r.o[1][0] * scale0, r.o[1][1] * scale0);
                if (t == 0) lse[(long long)item * N + row0] = r.top0 * LOGIT + __log2f(sum0);
            }
            if (row1 < N) {
                *(u32*)(to + 8 * WIDTH) = pack(r.o[0][2] * scale1, r.o[0][3] * scale1);
                *(u32*)(to + 8 * WIDTH + 64) = pack(r.o[1][2] * scale1, r.o[1][3] * scale1);
                if (t == 0) lse[(long long)item * N + row1] = r.top1 * LOGIT + __log2f(sum1);
            }
        }
    }
}

#define KEYS (TILES > 16 ? 2 : 1)  // tiles of 16 keys that a warp has at a time
#define GROUPS ((TILES + KEYS - 1) / KEYS)
#define ROUNDS ((GROUPS + 15) / 16)
#define CREW ((GROUPS + ROUNDS - 1) / ROUNDS)  // warps of a block
#define APART (TILES / CREW)                   // tiles of queries from one warp to the next

extern "C" __global__ void __launch_bounds__(CREW * 32) attention_backward(
    const u16* __restrict__ qkv, const long long* __restrict__ seed, const u16* __restrict__ out,
    const float* __restrict__ lse, const u16* __restrict__ dout, u16* __restrict__ dqkv,
    int boards, int site) {
    extern __shared__ __align__(16) u16 shared[];
    u16 *queries = shared, *grads = queries + PADDED * STRIDE;
    float* dqs = (float*)(grads + PADDED * STRIDE);  // a tile's two accumulators as the lanes hold them
    float* sums = dqs + PADDED * SIZE;               // each query row's log-sum-exp, and its sum of out * dout
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int first = first_cell(blockIdx.x / HEADS, boards), column = blockIdx.x % HEADS * SIZE;
    stage(queries, qkv, first, column, 3 * WIDTH, PADDED, CREW * 32);
    stage(grads, dout, first, column, WIDTH, PADDED, CREW * 32);
    for (int i = threadIdx.x; i < PADDED * SIZE / 4; i += CREW * 32) ((float4*)dqs)[i] = make_float4(0, 0, 0, 0);
    for (int row = threadIdx.x; row < PADDED; row += CREW * 32) {
        float dot = 0, top = 1e30f;  // beyond the board every weight is exp2(-1e30) = 0
        if (row < N) {
            const long long at = place(first + row, column, WIDTH);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 a = *(const uint4*)(out + at + half * 64), b = *(const uint4*)(dout + at + half * 64);
                dot += low(a.x) * low(b.x) + high(a.x) * high(b.x) + low(a.y) * low(b.y) + high(a.y) * high(b.y);
                dot += low(a.z) * low(b.z) + high(a.z) * high(b.z) + low(a.w) * low(b.w) + high(a.w) * high(b.w);
            }
            top = lse[(long long)blockIdx.x * N + row] - __log2f(UPSCALE);  // weights here are UPSCALE times as large
        }
        ((float2*)sums)[row] = make_float2(top, dot / UPSCALE);
    }
    const u32 dice = DROP > 0 ? stream(seed, (site << 24) + blockIdx.x) : 0;
    const u32 columns_at = address(queries + lane_columns(lane)), rows_at = address(queries + lane_rows(lane));
    for (int round = 0; round < GROUPS; round += CREW) {
        const bool busy = GROUPS % CREW == 0 || round + warp < GROUPS;
        const int key0 = (round + warp) * KEYS * 16 + g;  // keys key0 and key0 + 8 of each tile of 16
        u32 k[KEYS][4], v[KEYS][4], turned[KEYS][4];
        float dk[KEYS][2][4] = {}, dv[KEYS][2][4] = {};
#pragma unroll
        for (int c = 0; c < KEYS; c++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int key = key0 + c * 16 + half * 8;  // beyond the board the last one again: its logits are bounded
                const u16* from = qkv + place(first + min(key, N - 1), column + WIDTH + 2 * t, 3 * WIDTH);
#pragma unroll
                for (int side = 0; side < 2; side++) {
                    k[c][half + 2 * side] = *(const u32*)(from + side * 64);
                    v[c][half + 2 * side] = *(const u32*)(from + side * 64 + 8 * WIDTH);
                    turned[c][half + 2 * side] = transposed(key < N ? k[c][half + 2 * side] : 0);
                }
            }
        }
        const u32 place0 = DROP > 0 ? dice + 2 * t * ROW_STEP + key0 * COLUMN_STEP : 0;
        int tile = warp * APART;
        for (int step = 0; step < TILES;) {
            __syncthreads();  // until the next one no two warps meet
            for (int i = 0; i < APART && step < TILES; i++, step++) {
                if (!busy) continue;
                u32 q[4], d[4], qs[4], ds[4];
                const u32 by_columns = columns_at + tile * (16 * STRIDE * 2), by_rows = rows_at + tile * (16 * STRIDE * 2);
                load_matrices(q, by_columns);
                load_matrices(d, by_columns + PADDED * STRIDE * 2);
                load_turned(qs, by_rows);
                load_turned(ds, by_rows + PADDED * STRIDE * 2);
                float4* mine = (float4*)(dqs + lane * 4 + tile * (16 * SIZE));
                const float4 dq0 = mine[0], dq1 = mine[32];
                float dq[2][4] = {{dq0.x, dq0.y, dq0.z, dq0.w}, {dq1.x, dq1.y, dq1.z, dq1.w}};
                const float4* both = (const float4*)(sums + t * 4 + tile * 32);
                const float4 sum[2] = {both[0], both[4]};
#pragma unroll
                for (int c = 0; c < KEYS; c++) {
                    u32 p[4], e[4], f[4], even, odd;
                    if (DROP > 0) {
                        const u32 place = place0 + tile * (16 * ROW_STEP) + c * (16 * COLUMN_STEP);
                        even = scrambled(place), odd = scrambled(place + ROW_STEP);
                    }
                    float w[2][4], used[2][4];
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float s[4] = {};
                        mma(s, k[c], q[2 * h], q[2 * h + 1]);
                        w[h][0] = used[h][0] = weight(s[0], sum[h].x), w[h][1] = used[h][1] = weight(s[1], sum[h].z);
                        w[h][2] = used[h][2] = weight(s[2], sum[h].x), w[h][3] = used[h][3] = weight(s[3], sum[h].z);
                    }
                    if (DROP > 0) {
                        without_one(used[0][0], used[1][0], used[0][2], used[1][2], even);
                        without_one(used[0][1], used[1][1], used[0][3], used[1][3], odd);
                    }
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float dp[4] = {};
                        mma(dp, v[c], d[2 * h], d[2 * h + 1]);
                        p[2 * h] = pack(used[h][0], used[h][1]), p[2 * h + 1] = pack(used[h][2], used[h][3]);
                        e[2 * h] = pack(used[h][0] * dp[0] - w[h][0] * sum[h].y, used[h][1] * dp[1] - w[h][1] * sum[h].w);
                        e[2 * h + 1] = pack(used[h][2] * dp[2] - w[h][2] * sum[h].y, used[h][3] * dp[3] - w[h][3] * sum[h].w);
                    }
                    mma(dk[c][0], e, qs[0], qs[1]);  // dK = dS^T Q
                    mma(dk[c][1], e, qs[2], qs[3]);
                    mma(dv[c][0], p, ds[0], ds[1]);  // dV = P^T dO
                    mma(dv[c][1], p, ds[2], ds[3]);
#pragma unroll
                    for (int m = 0; m < 4; m++) f[(m & 1) * 2 + (m >> 1)] = transposed(e[m]);
                    mma(dq[0], f, turned[c][0], turned[c][1]);  // dQ = dS K
                    mma(dq[1], f, turned[c][2], turned[c][3]);
                }
                mine[0] = make_float4(dq[0][0], dq[0][1], dq[0][2], dq[0][3]);
                mine[32] = make_float4(dq[1][0], dq[1][1], dq[1][2], dq[1][3]);
                tile = tile + 1 == TILES ? 0 : tile + 1;
            }
        }
#pragma unroll
        for (int c = 0; c < KEYS; c++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int key = key0 + c * 16 + half * 8;
                if (key >= N) continue;
                u16* to = dqkv + place(first + key, column + WIDTH + 2 * t, 3 * WIDTH);
                *(u32*)to = pack(dk[c][0][2 * half] * 0.25f, dk[c][0][2 * half + 1] * 0.25f);
                *(u32*)(to + 64) = pack(dk[c][1][2 * half] * 0.25f, dk[c][1][2 * half + 1] * 0.25f);
                *(u32*)(to + 8 * WIDTH) = pack(dv[c][0][2 * half], dv[c][0][2 * half + 1]);
                *(u32*)(to + 8 * WIDTH + 64) = pack(dv[c][1][2 * half], dv[c][1][2 * half + 1]);
            }
        }
    }
    __syncthreads();
    for (int tile = warp; tile < TILES; tile += CREW) {
        const float4* mine = (const float4*)(dqs + tile * 16 * SIZE) + lane;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const float4 dq = mine[side * 32];
            u16* to = dqkv + place(first + tile * 16 + g, column + side * 8 + 2 * t, 3 * WIDTH);
            if (tile * 16 + g < N) *(u32*)to = pack(dq.x * 0.25f, dq.y * 0.25f);
            if (tile * 16 + g + 8 < N) *(u32*)(to + 24 * WIDTH) = pack(dq.z * 0.25f, dq.w * 0.25f);
        }
    }
}
