// One expert of one layer: the thing that is cached. Its slices (gate, up, down, or gate_up and down) share one slot.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace expert_cache {

struct Layer;
struct Unit;

// In execution order inside a layer.
enum Kind : uint8_t { kGate = 0, kGateUp = 1, kUp = 2, kDown = 3 };
constexpr int kKinds = 4;

// `progress` of one slice: kAbsent, or the chunks still to come, plus kFailure for each chunk that could not be read.
// 0 is ready, and nothing else is. One word, so that a reader's last chunk changes the state in one step.
constexpr int32_t kAbsent = -1;
constexpr int32_t kFailure = 1 << 20;
constexpr bool is_finished(int32_t progress) { return progress >= 0 && (progress & (kFailure - 1)) == 0; }
constexpr bool is_failed(int32_t progress) { return progress >= kFailure; }

// One slice to be read, as it stands in the read queue; all guarded by the queue's lock.
struct Load {
    Unit * unit = nullptr;
    Kind kind = kGate;
    int32_t next_chunk = 0;
    int32_t chunks = 0;
    int8_t list = -1;  // which list it stands in; -1: none
    Load * prev = nullptr;
    Load * next = nullptr;
};

constexpr int32_t kNotResident = -1;
// `pins` counts operations in its low bits and unfinished loads in steps of this.
constexpr int32_t kLoadPin = 1 << 20;

struct Unit {
    Layer * layer = nullptr;
    int32_t expert = 0;

    // kNotResident, or how many operations and loads hold it. Only with the cache's lock does it become or cease to be
    // kNotResident; an operation holds a resident unit by compare-and-swap.
    std::atomic<int32_t> pins{kNotResident};
    std::array<std::atomic<int32_t>, kKinds> progress{{{kAbsent}, {kAbsent}, {kAbsent}, {kAbsent}}};

    // Guarded by the cache's lock; `base` may also be read by whoever holds a pin.
    char * base = nullptr;
    int32_t slot = -1;
    Unit * newer = nullptr;
    Unit * older = nullptr;

    std::array<Load, kKinds> loads;

    bool all_finished() const {
        for (const auto & p : progress) {
            const int32_t now = p.load(std::memory_order_relaxed);
            if (now != kAbsent && !is_finished(now)) {
                return false;
            }
        }
        return true;
    }

    bool try_pin() {
        int32_t n = pins.load(std::memory_order_relaxed);
        while (n != kNotResident) {
            if (pins.compare_exchange_weak(n, n + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }
};

// Least recently used order: an intrusive list, every step O(1). Guarded by the cache's lock.
class LruList {
public:
    void push_newest(Unit * u) {
        u->newer = nullptr;
        u->older = newest_;
        (newest_ != nullptr ? newest_->newer : oldest_) = u;
        newest_ = u;
    }
    void remove(Unit * u) {
        (u->newer != nullptr ? u->newer->older : newest_) = u->older;
        (u->older != nullptr ? u->older->newer : oldest_) = u->newer;
        u->newer = u->older = nullptr;
    }
    void touch(Unit * u) {
        if (newest_ != u) {
            remove(u);
            push_newest(u);
        }
    }
    Unit * oldest() const { return oldest_; }

private:
    Unit * newest_ = nullptr;
    Unit * oldest_ = nullptr;
};

}  // namespace expert_cache
