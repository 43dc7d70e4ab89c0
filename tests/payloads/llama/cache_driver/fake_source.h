// A source whose every byte is known by its place, and whose reads can be slow, short, interrupted, failing, reordered.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>

#include "source.h"

namespace driver {

inline uint64_t mixed(uint64_t n) {
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
    return n ^ (n >> 31);
}

// Eight bytes of a file at a multiple of eight.
inline uint64_t word_at(uint64_t salt, int file, uint64_t offset) {
    return mixed(offset / 8 + salt * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(file) * 0xd1b54a32d192ed03ULL);
}

inline void fill(uint64_t salt, int file, uint64_t offset, char * dst, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = word_at(salt, file, offset + i);
        memcpy(dst + i, &word, 8);
    }
}

// Every byte of [offset, offset + bytes) as it should be; no alignment needed.
inline bool holds(uint64_t salt, int file, uint64_t offset, const char * data, uint64_t bytes) {
    uint64_t i = 0;
    while (i < bytes) {
        const uint64_t at = offset + i;
        const uint64_t word = word_at(salt, file, at / 8 * 8);
        const uint64_t skip = at % 8;
        const uint64_t n = 8 - skip < bytes - i ? 8 - skip : bytes - i;
        if (memcmp(data + i, reinterpret_cast<const char *>(&word) + skip, n) != 0) {
            return false;
        }
        i += n;
    }
    return true;
}

struct Faults {
    int slow_percent = 0;   // sleeps up to 400 us: reads overtake each other
    int short_percent = 0;  // delivers less than asked
    int interrupted_percent = 0;
    std::atomic<int> failing_percent{0};
};

class FakeSource : public expert_cache::Source {
public:
    FakeSource(uint64_t salt, uint64_t file_bytes, Faults * faults, uint64_t seed)
        : salt_(salt), file_bytes_(file_bytes), faults_(faults), seed_(seed) {}

    int64_t read(int file, char * dst, uint64_t offset, uint64_t bytes) override {
        const uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed);
        const uint64_t dice = mixed(call * 2654435761U + seed_);
        if (offset % 4096 != 0 || bytes % 4096 != 0 || reinterpret_cast<uintptr_t>(dst) % 4096 != 0) {
            return -EINVAL;  // as O_DIRECT says
        }
        if (static_cast<int>(dice % 100) < faults_->slow_percent) {
            std::this_thread::sleep_for(std::chrono::microseconds(dice / 100 % 400));
        }
        if (static_cast<int>(dice / 7 % 100) < faults_->interrupted_percent) {
            return -EINTR;
        }
        if (static_cast<int>(dice / 11 % 100) < faults_->failing_percent.load(std::memory_order_relaxed)) {
            memset(dst, 0xee, bytes);  // half a transfer may have happened
            return -EIO;
        }
        if (offset >= file_bytes_) {
            return 0;
        }
        uint64_t n = bytes < file_bytes_ - offset ? bytes : file_bytes_ - offset;
        fill(salt_, file, offset, dst, (n + 7) / 8 * 8);
        if (n > 512 && static_cast<int>(dice / 13 % 100) < faults_->short_percent) {
            n = 1 + dice / 17 % n;
            memset(dst + n, 0xee, bytes - n);
        }
        return static_cast<int64_t>(n);
    }

    uint64_t calls() const { return calls_.load(); }

private:
    const uint64_t salt_;
    const uint64_t file_bytes_;
    Faults * const faults_;
    const uint64_t seed_;
    std::atomic<uint64_t> calls_{0};
};

}  // namespace driver
