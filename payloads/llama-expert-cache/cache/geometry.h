// Where a slice lies in its file, in its slot, and how it is cut into reads. Pure arithmetic, units are bytes.
#pragma once

#include <cstdint>

namespace expert_cache {

// O_DIRECT wants offsets, lengths and addresses in multiples of the device's block; 4 KiB serves every disk we know.
constexpr uint64_t kPage = 4096;

constexpr uint64_t round_down(uint64_t n) { return n & ~(kPage - 1); }
constexpr uint64_t round_up(uint64_t n) { return round_down(n + kPage - 1); }

// The pages [begin, end) of a file that hold a slice, rounded outward.
struct Window {
    uint64_t begin = 0;
    uint64_t end = 0;
    constexpr uint64_t bytes() const { return end - begin; }
};

constexpr Window window_of(uint64_t offset, uint64_t bytes) {
    return Window{round_down(offset), round_up(offset + bytes)};
}

// A slice of any size at any offset fits: its window is at most one page longer than the slice rounded up.
// "Slice + 4 KiB" without rounding is too small: the last page read would run into the neighbour.
constexpr uint64_t slot_bytes_for(uint64_t slice_bytes) { return round_up(slice_bytes) + kPage; }

constexpr int32_t chunk_count(Window w, uint64_t chunk_bytes) {
    return static_cast<int32_t>((w.bytes() + chunk_bytes - 1) / chunk_bytes);
}

// Chunk `index` of a window; the last one is shorter.
constexpr Window chunk_of(Window w, uint64_t chunk_bytes, int32_t index) {
    const uint64_t begin = w.begin + static_cast<uint64_t>(index) * chunk_bytes;
    return Window{begin, begin + chunk_bytes < w.end ? begin + chunk_bytes : w.end};
}

}  // namespace expert_cache
