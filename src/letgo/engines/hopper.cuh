// Hopper's bulk copies (with barriers that count bytes) and asynchronous matrix products.

// Copies into shared memory: `issue` by one thread, `await` by all. A barrier's parity tells its uses apart.
__device__ __forceinline__ u32 address(const void* at) { return (u32)__cvta_generic_to_shared(at); }
__device__ __forceinline__ void prepare(u64* bars, int count, int arrivals = 1) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bars + i)), "r"(arrivals));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
}
__device__ __forceinline__ void expect(u64* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void issue(u64* bar, u16* to, const u16* from, int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
                 "l"(from), "r"(bytes), "r"(address(bar)) : "memory");
}
__device__ __forceinline__ void arrive(u64* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(bar)) : "memory");
}
__device__ __forceinline__ void await(u64* bar, int parity) {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done; bra again; done:}" ::"r"(
                     address(bar)), "r"(parity) : "memory");
}

// What a thread wrote to shared memory, to be seen by the products that follow.
__device__ __forceinline__ void show() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A matrix of cores as wgmma sees it: `deep` bytes to the next core in the direction of the sum, `wide` in the other.
__device__ __forceinline__ u64 cores(const u16* at, int deep, int wide) {
    const u64 start = (u32)__cvta_generic_to_shared(at) >> 4;
    return (start & 0x3FFF) | (u64)(deep >> 4) << 16 | (u64)(wide >> 4) << 32;
}

__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int behind>
__device__ __forceinline__ void finished() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(behind) : "memory"); }

#define FOUR(c) "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define D16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define D64 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
            "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
