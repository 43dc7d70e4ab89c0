// From a tensor's address to what the cache knows about it, read without a lock by whoever computes.
// (Not `tensor->extra`: ggml picks other kernels for tensors that have one, and other kernels round otherwise.)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace expert_cache {

template <typename Value> class TensorTable {
public:
    static constexpr size_t kCapacity = 1 << 14;

    // False: full. `value` must stay until the tensor is removed.
    bool insert(const void * tensor, const Value * value) {
        for (size_t i = 0; i < kCapacity; ++i) {
            Cell & cell = cells_[(start(tensor) + i) % kCapacity];
            const void * key = cell.key.load(std::memory_order_relaxed);
            if ((key == nullptr || key == gone()) &&
                cell.key.compare_exchange_strong(key, busy(), std::memory_order_acquire)) {
                cell.value.store(value, std::memory_order_relaxed);
                cell.key.store(tensor, std::memory_order_release);
                return true;
            }
        }
        return false;
    }

    void remove(const void * tensor) {
        if (Cell * cell = at(tensor)) {
            cell->key.store(gone(), std::memory_order_release);
        }
    }

    const Value * find(const void * tensor) {
        const Cell * cell = at(tensor);
        return cell == nullptr ? nullptr : cell->value.load(std::memory_order_relaxed);
    }

private:
    struct Cell {
        std::atomic<const void *> key{nullptr};
        std::atomic<const Value *> value{nullptr};
    };

    const void * gone() const { return &cells_; }  // was used, may be used again; no tensor lives at these addresses
    const void * busy() const { return reinterpret_cast<const char *>(&cells_) + 1; }

    static size_t start(const void * tensor) {
        return static_cast<size_t>((reinterpret_cast<uintptr_t>(tensor) >> 4) * 0x9e3779b97f4a7c15ULL >> 40);
    }

    Cell * at(const void * tensor) {
        for (size_t i = 0; i < kCapacity; ++i) {
            Cell & cell = cells_[(start(tensor) + i) % kCapacity];
            const void * key = cell.key.load(std::memory_order_acquire);
            if (key == tensor) {
                return &cell;
            }
            if (key == nullptr) {
                return nullptr;
            }
        }
        return nullptr;
    }

    std::array<Cell, kCapacity> cells_;
};

}  // namespace expert_cache
