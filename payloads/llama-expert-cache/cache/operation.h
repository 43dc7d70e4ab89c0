// One matrix product over chosen experts (one kind, one layer), shared by the compute threads that run it.
//
// Entries stand in the order in which they become available: units that are ready, units on their way, units that still
// have to get a slot. Every thread visits every entry once; the last thread to leave an entry lets go of its unit.
// Threads visit what is ready first and then wait in entry order, and slots are given in entry order too, so a thread
// never waits for a slot while it keeps one from being freed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "unit.h"

namespace expert_cache {

struct Layer;

struct Entry {
    Unit * unit = nullptr;
    std::atomic<int32_t> users{0};
};

// Set in `admitted` when a read failed: no more entries will be admitted.
constexpr int32_t kOperationFailed = 1 << 30;

struct Operation {
    Layer * layer = nullptr;
    Kind kind = kGate;
    unsigned kinds_to_load = 0;  // bits by Kind, of units that have to be read
    int32_t threads = 0;
    int32_t count = 0;
    int32_t at_begin = 0;               // entries that had their slot when the operation began
    std::unique_ptr<Entry[]> entries;   // room for every expert of any layer of the model
    std::atomic<int32_t> admitted{0};   // entries [0, admitted) have a slot
    std::atomic<int32_t> threads_left{0};
    std::vector<Unit *> ready, coming, partial, cold;  // scratch of begin()

    explicit Operation(int32_t most_experts) : entries(new Entry[static_cast<size_t>(most_experts)]) {}
};

}  // namespace expert_cache
