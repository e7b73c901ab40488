// A block of CUDA threads on a CPU: every lane is a fiber that runs until its warp or block must meet. Warps take turns of
// random length, and what the card does later (bulk copies, products of wgmma) happens at any time that the card allows, so
// that a missing barrier shows. What is inline assembly in the kernels is written out here.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define __device__
#define __global__
#define __shared__ __attribute__((section("on_chip"), used)) static
#define __forceinline__ inline
#define __align__(bytes)
#define __launch_bounds__(...)
#define __log2f log2f

using std::min;

struct Index { int x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { u32 x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
template <class To, class From> To bits(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
inline float __uint_as_float(u32 x) { return bits<float>(x); }

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline void atomicAdd(float* to, float x) { *to += x; }  // fibers do not interrupt each other

// What a block may have on the card, and the same as bulk copies and wgmma see it.
alignas(128) u16 shared[232448 / 2], shown[232448 / 2];
__shared__ u64 first_on_chip;  // the variables that kernels declare: one section
extern char __start_on_chip[], __stop_on_chip[];
Index threadIdx, blockIdx, blockDim, gridDim;

// ---- fibers ----

struct Meeting { int here = 0; long held = 0; };
ucontext_t scheduler;
std::vector<ucontext_t> fibers;
std::vector<char> ended;
std::function<void()> body;
Meeting block, warps[64];
std::mt19937 order;
int threads;
long meetings, steps;  // held so far; other things that someone may have waited for
const char* fault;     // the first thing that went wrong
inline void require(bool right, const char* otherwise) {
    if (!right && !fault) fault = otherwise;
}

inline void pause() {
    const int me = threadIdx.x;
    swapcontext(&fibers[me], &scheduler);
    threadIdx.x = me;
}
inline void dawdle() {  // now and then, for long enough that others can make something of what was just done
    for (int i = order() % 4 ? 0 : order() % 64; i > 0; i--) pause();
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
inline void leave_late_work();
inline void do_late_work(bool idle);
inline void run_block(int bytes) {
    static std::vector<std::vector<char>> stacks;
    while ((int)stacks.size() < threads) stacks.emplace_back(1 << 16);
    memset(shared, 0xff, sizeof shared), memset(shown, 0xff, sizeof shown);  // NaN, as bf16 and as fp32
    memset(__start_on_chip, 0xc5, __stop_on_chip - __start_on_chip);  // -6329: fminf would pass over NaN
    block = {}, std::fill(warps, warps + 64, Meeting()), fibers.assign(threads, {}), ended.assign(threads, 0);
    for (int i = 0; i < threads; i++) {
        getcontext(&fibers[i]);
        fibers[i].uc_stack.ss_sp = stacks[i].data(), fibers[i].uc_stack.ss_size = stacks[i].size();
        makecontext(&fibers[i], lane_of_a_block, 0);
    }
    long idle = 0, seen = -1;
    for (int left = threads; left > 0 && !fault;) {
        const int first = order() % (threads / 32) * 32;
        for (long turns = order() % 256, before = -1; turns > 0 && before != meetings; turns--) {
            before = meetings;
            for (int i = first; i < first + 32; i++) {
                threadIdx.x = i;
                if (ended[i]) continue;
                swapcontext(&scheduler, &fibers[i]);
                left -= ended[i], steps += ended[i];
            }
        }
        do_late_work(idle > 64);
        idle = seen == meetings + steps ? idle + 1 : 0, seen = meetings + steps;
        require(idle < 5000, "all warps wait");
    }
    leave_late_work();
    for (int i = bytes / 2; i < (int)(sizeof shared / 2); i++)
        require(shared[i] == 0xffff, "shared memory beyond what was asked for");
}
// What went wrong, if anything.
inline const char* launch(Index grid, int count, int bytes, std::function<void()> kernel) {
    order.seed(1), fault = nullptr;
    threads = blockDim.x = count, body = kernel, gridDim = grid;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x && !fault; blockIdx.x++) run_block(bytes);
    return fault;
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

inline u32 __cvta_generic_to_shared(const void* at) { return (u32)((const char*)at - (const char*)shared); }

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

// ---- bulk copies and the barriers that count their bytes ----

struct Barrier { short arrivals, left; int bytes : 31, odd : 1; };  // `odd`: the parity of the phase under way
static_assert(sizeof(Barrier) == sizeof(u64), "kernels give it the room of a u64");
inline Barrier& barrier(u64* at) { return *(Barrier*)at; }
inline void prepare(u64* bars, int count, int arrivals = 1) {
    if (threadIdx.x == 0)
        for (int i = 0; i < count; i++) barrier(bars + i) = {(short)arrivals, (short)arrivals, 0, 0};
    __syncthreads();
}
inline void settle(Barrier& b) {
    if (b.left == 0 && b.bytes == 0) b.left = b.arrivals, b.odd = ~b.odd, steps++;
}
inline void arrive(u64* bar) {
    require(barrier(bar).left-- > 0, "an arrival too many at a barrier");
    settle(barrier(bar));
    dawdle();
}
inline void expect(u64* bar, int bytes) { barrier(bar).bytes += bytes, arrive(bar); }
inline void await(u64* bar, int parity) {
    while ((barrier(bar).odd & 1) == parity) pause();
}
// Until a copy is done its place holds NaN. Every other one is done only when all warps wait.
struct Copy { u64* bar; u32 to; const u16* from; int bytes; bool last; };
std::vector<Copy> copies;
inline void issue(u64* bar, u16* to, const u16* from, int bytes) {
    const u32 at = __cvta_generic_to_shared(to);
    require((at | (u64)from | bytes) % 16 == 0, "a bulk copy that is not aligned");
    require(at + bytes <= sizeof shared, "a bulk copy to beyond shared memory");
    if (fault) return;
    memset(to, 0xff, bytes), memset(shown + at / 2, 0xff, bytes);
    copies.push_back({bar, at, from, bytes, order() % 2 == 0});
    dawdle();
}
inline void do_late_work(bool idle) {
    while (!copies.empty() && order() % 4 == 0) {
        std::swap(copies[order() % copies.size()], copies.back());
        const Copy copy = copies.back();
        if (copy.last && !idle) continue;
        copies.pop_back();
        memcpy(shared + copy.to / 2, copy.from, copy.bytes), memcpy(shown + copy.to / 2, copy.from, copy.bytes);
        barrier(copy.bar).bytes -= copy.bytes, settle(barrier(copy.bar));
    }
}
inline void show() { memcpy(shown, shared, sizeof shared); }

// ---- wgmma: of 64 rows every warp has 16, and does them at any time from the end of their group to the wait for it ----

struct Product { float (*c)[4]; const u32* a; u64 left, right; int tiles; bool left_turned, turned, adding; };
struct Products { bool begun; std::vector<Product> open; std::deque<std::vector<Product>> groups; } products[2048];

inline float element(u64 cores, int row, int k, bool turned) {
    const u64 deep = cores >> 16 & 0x3fff, wide = cores >> 32 & 0x3fff;
    const u64 at = ((cores & 0x3fff) + k / 8 * deep + row / 8 * wide) * 8 + (turned ? k % 8 * 8 + row % 8 : row % 8 * 8 + k % 8);
    if (at >= sizeof shown / 2) return NAN;
    return bits<float>((u32)shown[at] << 16);
}
inline void multiply(int warp, int group, int number) {
    auto mine = [&](int lane) -> Product& { return products[warp * 32 + lane].groups[group][number]; };
    const Product& p = mine(0);
    float a[16][16], b[16][128];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            if (p.a) a[row][k] = part(mine(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2);
            else a[row][k] = element(p.left, warp % 4 * 16 + row, k, p.left_turned);
    for (int k = 0; k < 16; k++)
        for (int column = 0; column < p.tiles * 8; column++) b[k][column] = element(p.right, column, k, p.turned);
    for (int lane = 0; lane < 32; lane++) {
        const Product& q = mine(lane);
        require(q.left == p.left && q.right == p.right, "lanes that multiply different matrices");
        for (int j = 0; j < p.tiles; j++)
            for (int e = 0; e < 4; e++) {
                const int row = lane / 4 + e / 2 * 8, column = j * 8 + lane % 4 * 2 + e % 2;
                float sum = p.adding ? q.c[j][e] : 0;
                for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
                q.c[j][e] = sum;
            }
    }
}
inline void multiply_until(int warp, int behind) {
    Products* lanes = products + warp * 32;
    while ((int)lanes->groups.size() > behind) {
        for (int i = 0; i < (int)lanes->groups[0].size(); i++) multiply(warp, 0, i);
        for (int lane = 0; lane < 32; lane++) lanes[lane].groups.pop_front();
    }
}
inline void leave_late_work() {
    require(copies.empty(), "a bulk copy that nobody waited for"), copies.clear();
    for (int i = 0; i < threads; i++) {
        require(products[i].open.empty() && products[i].groups.empty(), "products that nobody waited for");
        products[i] = {};
    }
}
inline void begin() { products[threadIdx.x].begun = true; }
inline void multiply_later(Product product) {
    require(products[threadIdx.x].begun, "a product without wgmma.fence");
    products[threadIdx.x].open.push_back(product);
}
inline void close() {
    Products& mine = products[threadIdx.x];
    mine.groups.push_back(std::move(mine.open)), mine.open.clear();
    const int warp = threadIdx.x / 32;
    meet(warps[warp], 32, [&] { if (order() % 2) multiply_until(warp, 0); });
}
template <int behind>
inline void finished() {
    const int warp = threadIdx.x / 32;
    products[threadIdx.x].begun = false;
    meet(warps[warp], 32, [&] { multiply_until(warp, behind); });
}
template <int turned>
inline void narrow(float (*c)[4], const u32* a, u64 b) { multiply_later({c, a, 0, b, 4, false, turned, true}); }
template <int turned, bool adding>
inline void narrow(float (*c)[4], u64 a, u64 b) { multiply_later({c, nullptr, a, b, 4, false, turned, adding}); }
template <int turned>
inline void wide(float (*c)[4], const u32* a, u64 b) { multiply_later({c, a, 0, b, 16, false, turned, true}); }
inline void product(float (*c)[4], u64 a, u64 b) { multiply_later({c, nullptr, a, b, 16, true, true, true}); }
inline void sum_rows(float* c, u64 a, u64 ones) { multiply_later({(float (*)[4])c, nullptr, a, ones, 1, true, true, true}); }

// ---- what a lane does alone ----

inline u32 rounded(float x) {  // to bf16, to nearest even
    const u32 word = bits<u32>(x);
    return std::isnan(x) ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
inline u32 pack(float low, float high) { return rounded(low) | rounded(high) << 16; }
inline float exp2_fast(float x) { return exp2f(x); }
inline float tanh_fast(float x) { return tanhf(x); }
inline float later(const float* constant) { return *constant; }
inline void prefetch(const char*) {}
inline void add2(float* to, float a, float b) { to[0] += a, to[1] += b; }
#ifdef DROP
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
#endif
inline void copy_async(u32 to, const void* from, u32 bytes) {  // the other bytes of 16 are zeros
    char* place = (char*)shared + to;
    memset(place, 0, 16), memcpy(place, from, bytes);
}
inline void copied() {}
