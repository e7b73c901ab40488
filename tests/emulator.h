// A block of CUDA threads on a CPU: every lane is a fiber that runs until its warp or block must meet. Warps take turns of
// random length, so that a missing barrier shows. What is inline assembly in the kernels is written out here.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

typedef unsigned int u32;
typedef unsigned short u16;

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __align__(bytes)
#define __launch_bounds__(...)
#define __log2f log2f

using std::min;

struct Index { int x; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { u32 x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
template <class To, class From> To bits(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
inline float __uint_as_float(u32 x) { return bits<float>(x); }

alignas(16) u16 shared[232448 / 2];  // what a block may have on the card
Index threadIdx, blockIdx, gridDim;

// ---- fibers ----

struct Meeting { int here = 0; long held = 0; };
ucontext_t scheduler;
std::vector<ucontext_t> fibers;
std::vector<char> ended;
std::function<void()> body;
Meeting block, warps[64];
int threads;
long meetings;  // held so far

inline void pause() {
    const int me = threadIdx.x;
    swapcontext(&fibers[me], &scheduler);
    threadIdx.x = me;
}
// The last of `count` to come does the work for all.
inline void meet(Meeting& m, int count, const std::function<void()>& work) {
    const long now = m.held;
    if (++m.here == count) work(), m.here = 0, m.held++, meetings++;
    while (m.held == now) pause();
}
inline void __syncthreads() { meet(block, threads, [] {}); }

void lane_of_a_block() {
    body();
    ended[threadIdx.x] = 1;
    swapcontext(&fibers[threadIdx.x], &scheduler);
}
// Whether the blocks kept to `bytes` of shared memory.
inline bool launch(int blocks, int count, int bytes, std::function<void()> kernel) {
    static std::vector<std::vector<char>> stacks;
    std::mt19937 order(1);
    threads = count, body = kernel, gridDim.x = blocks;
    while ((int)stacks.size() < count) stacks.emplace_back(1 << 16);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        memset(shared, 0xff, sizeof shared);  // NaN, as bf16 and as fp32
        fibers.assign(count, {}), ended.assign(count, 0);
        for (int i = 0; i < count; i++) {
            getcontext(&fibers[i]);
            fibers[i].uc_stack.ss_sp = stacks[i].data(), fibers[i].uc_stack.ss_size = stacks[i].size();
            makecontext(&fibers[i], lane_of_a_block, 0);
        }
        for (int left = count; left > 0;) {
            const int first = order() % (count / 32) * 32;
            for (long turns = order() % 256, before = -1; turns > 0 && before != meetings; turns--) {
                before = meetings;
                for (int i = first; i < first + 32; i++) {
                    threadIdx.x = i;
                    if (ended[i]) continue;
                    swapcontext(&scheduler, &fibers[i]);
                    left -= ended[i];
                }
            }
        }
        for (int i = bytes / 2; i < (int)(sizeof shared / 2); i++)
            if (shared[i] != 0xffff) return false;
    }
    return true;
}

// ---- what a warp does together: every lane gives 12 words and gets 4 ----

struct Words { u32 word[12]; };
Words given[64][32], got[64][32];
inline Words together(const Words& mine, void (*work)(const Words* given, Words* got)) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    given[warp][lane] = mine;
    meet(warps[warp], 32, [&] { work(given[warp], got[warp]); });
    return got[warp][lane];
}

inline u32 address(const void* at) { return (u32)((const char*)at - (const char*)shared); }
inline u32 __cvta_generic_to_shared(const void* at) { return address(at); }

inline float __shfl_xor_sync(u32, float value, int step) {
    return bits<float>(together({{bits<u32>(value), (u32)step}}, [](const Words* in, Words* out) {
        for (int i = 0; i < 32; i++) out[i].word[0] = in[i ^ in[i].word[1]].word[0];
    }).word[0]);
}
inline bool __any_sync(u32, bool mine) {
    return together({{mine}}, [](const Words* in, Words* out) {
        const bool any = std::any_of(in, in + 32, [](const Words& w) { return w.word[0] != 0; });
        for (int i = 0; i < 32; i++) out[i].word[0] = any;
    }).word[0];
}
inline u16 at(u32 bytes, int index) { return shared[bytes / 2 + index]; }
inline u32 pair(u16 low, u16 high) { return low | (u32)high << 16; }
inline void load_matrices(u32* f, u32 from) {
    const Words out = together({{from}}, [](const Words* in, Words* out) {
        for (int i = 0; i < 32; i++)
            for (int m = 0; m < 4; m++) {
                const u32 row = in[m * 8 + i / 4].word[0];
                out[i].word[m] = pair(at(row, i % 4 * 2), at(row, i % 4 * 2 + 1));
            }
    });
    memcpy(f, out.word, 16);
}
inline void load_turned(u32* f, u32 from) {
    const Words out = together({{from}}, [](const Words* in, Words* out) {
        for (int i = 0; i < 32; i++)
            for (int m = 0; m < 4; m++) {
                const Words* rows = in + m * 8 + i % 4 * 2;
                out[i].word[m] = pair(at(rows[0].word[0], i / 4), at(rows[1].word[0], i / 4));
            }
    });
    memcpy(f, out.word, 16);
}
inline u32 transposed(u32 part) {
    return together({{part}}, [](const Words* in, Words* out) {
        for (int i = 0; i < 32; i++) {
            const int row = i % 4 * 2, column = i / 4;
            const u32 a = in[row * 4 + column / 2].word[0], b = in[row * 4 + 4 + column / 2].word[0];
            out[i].word[0] = pair(a >> column % 2 * 16, b >> column % 2 * 16);
        }
    }).word[0];
}
inline float part(u32 both, int high) { return bits<float>(high ? both & 0xffff0000u : both << 16); }
// mma.m16n8k16: A's four pairs in words 0-3, B's two in 4 and 5, sums in 6-9.
inline void mma(float* c, const u32* a, u32 b0, u32 b1) {
    Words mine = {{a[0], a[1], a[2], a[3], b0, b1}};
    memcpy(mine.word + 6, c, 16);
    const Words out = together(mine, [](const Words* in, Words* out) {
        for (int i = 0; i < 32; i++)
            for (int e = 0; e < 4; e++) {
                const int row = i / 4, column = i % 4 * 2 + e % 2;
                float sum = bits<float>(in[i].word[6 + e]);
                for (int k = 0; k < 16; k++) {
                    const u32 left = in[row * 4 + k % 8 / 2].word[e / 2 + k / 8 * 2];
                    sum += part(left, k % 2) * part(in[column * 4 + k % 8 / 2].word[4 + k / 8], k % 2);
                }
                out[i].word[e] = bits<u32>(sum);
            }
    });
    memcpy(c, out.word, 16);
}

// ---- what a lane does alone ----

inline u32 rounded(float x) {  // to bf16, to nearest even
    const u32 word = bits<u32>(x);
    return std::isnan(x) ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
inline u32 pack(float low, float high) { return rounded(low) | rounded(high) << 16; }
inline float exp2_fast(float x) { return exp2f(x); }
inline bool in_stretch(u32 number, u32 m) { return number - m * ((u32)DROP << 16) < (u32)DROP << 16; }
inline void without_one(float& a, float& b, float& c, float& d, u32 number) {
    float* all[] = {&a, &b, &c, &d};
    for (u32 m = 0; m < 4; m++)
        if (in_stretch(number, m)) *all[m] = 0;
}
inline void without_one(u32* pairs, u32 number, u32 mask) {
    for (u32 m = 0; m < 4; m++)
        if (in_stretch(number, m)) pairs[m] &= mask;
}
inline void copy_async(u32 to, const void* from, u32 bytes) {  // the other bytes of 16 are zeros
    char* place = (char*)shared + to;
    memset(place, 0, 16), memcpy(place, from, bytes);
}
inline void copied() {}
