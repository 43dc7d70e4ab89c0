// Uses of units in the order in which they happened, written without a lock and applied to the LRU list by whoever next
// holds the cache's lock. So a hit costs one ticket, and the order in which units are evicted is still exact.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "futex.h"
#include "unit.h"

namespace expert_cache {

class TouchLog {
public:
    static constexpr uint64_t kCapacity = 1 << 14;

    TouchLog() {
        for (uint64_t i = 0; i < kCapacity; ++i) {
            cells_[i].turn.store(i, std::memory_order_relaxed);
        }
    }

    // False when full: drain, then try again.
    bool push(Unit * unit) {
        uint64_t ticket = head_.load(std::memory_order_relaxed);
        for (;;) {
            Cell & cell = cells_[ticket % kCapacity];
            const uint64_t turn = cell.turn.load(std::memory_order_acquire);
            if (turn == ticket) {
                if (head_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
                    cell.unit = unit;
                    cell.turn.store(ticket + 1, std::memory_order_release);
                    return true;
                }
            } else if (turn < ticket) {
                return false;
            } else {
                ticket = head_.load(std::memory_order_relaxed);
            }
        }
    }

    // One drainer at a time. A ticket that is drawn but not yet written is waited for: its writer is one store away.
    template <typename Apply> void drain(Apply apply) {
        const uint64_t end = head_.load(std::memory_order_acquire);
        for (; tail_ < end; ++tail_) {
            Cell & cell = cells_[tail_ % kCapacity];
            while (cell.turn.load(std::memory_order_acquire) != tail_ + 1) {
                sched_yield();
            }
            apply(cell.unit);
            cell.turn.store(tail_ + kCapacity, std::memory_order_release);
        }
    }

private:
    struct Cell {
        std::atomic<uint64_t> turn{0};
        Unit * unit = nullptr;
    };
    alignas(64) std::atomic<uint64_t> head_{0};
    alignas(64) uint64_t tail_ = 0;
    std::array<Cell, kCapacity> cells_;
};

}  // namespace expert_cache
