// What happened, by layer. Relaxed atomics: each is exact, a set of them read in flight need not agree.
#pragma once

#include <atomic>
#include <cstdint>

namespace expert_cache {

struct Counters {
    std::atomic<uint64_t> hits{0};           // units wanted by a token (or batch) that were there, or on their way
    std::atomic<uint64_t> misses{0};         // units wanted that were not
    std::atomic<uint64_t> reloads{0};        // slices read again within one token, evicted before their turn came
    std::atomic<uint64_t> evictions{0};      // units of this layer that gave up their slot
    std::atomic<uint64_t> bytes_read{0};     // from the device, whole pages
    std::atomic<uint64_t> reads{0};          // chunks read
    std::atomic<uint64_t> read_ns{0};        // time inside reads, summed over readers
    std::atomic<uint64_t> read_errors{0};
    std::atomic<uint64_t> waits{0};          // times that a compute thread had to wait for a slice
    std::atomic<uint64_t> wait_ns{0};        // summed over compute threads
    std::atomic<uint64_t> first_wait_ns{0};  // of compute thread 0 alone: what the wall clock lost
    std::atomic<uint64_t> warmups{0};        // warm-up operations answered without reading
};

inline void add(std::atomic<uint64_t> & counter, uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }
inline uint64_t value(const std::atomic<uint64_t> & counter) { return counter.load(std::memory_order_relaxed); }

}  // namespace expert_cache
