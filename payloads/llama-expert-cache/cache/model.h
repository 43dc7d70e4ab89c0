// A model as the cache sees it: its files, and by layer the expert tensors with their units.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "counters.h"
#include "geometry.h"
#include "slot_memory.h"
#include "source.h"
#include "unit.h"

namespace expert_cache {

// One expert tensor: `experts` slices of `slice_bytes`, one after another from `offset` of file `file`.
struct TensorSpec {
    int layer = 0;
    Kind kind = kGate;
    int file = 0;
    uint64_t offset = 0;
    uint64_t slice_bytes = 0;
    int experts = 0;
};

// "blk.7.ffn_gate_up_exps.weight" -> layer 7, kGateUp. False for every other name (shared and block experts too).
bool parse_expert_tensor(const std::string & name, int * layer, Kind * kind);

struct Model;
struct Operation;

struct Part {
    bool present = false;
    int file = 0;
    uint64_t offset = 0;
    uint64_t slice_bytes = 0;
    uint64_t slot_offset = 0;

    Window window(int32_t expert) const {
        return window_of(offset + static_cast<uint64_t>(expert) * slice_bytes, slice_bytes);
    }
    // The slice's first byte in a slot at `base`.
    const char * data(const char * base, int32_t expert) const {
        const uint64_t begin = offset + static_cast<uint64_t>(expert) * slice_bytes;
        return base + slot_offset + (begin - round_down(begin));
    }
};

// Which operations belong to one token (or batch): they ask for the same experts, each kind once.
struct Pass {
    std::mutex lock;  // of this layer alone
    uint64_t experts_hash = 0;
    unsigned kinds_done = 0;
};

struct Layer {
    Model * model = nullptr;
    int index = 0;
    int experts = 0;
    uint64_t unit_bytes = 0;  // a slot for one unit of this layer
    Part parts[kKinds];
    std::unique_ptr<Unit[]> units;
    Counters counters;
    Pass pass;
};

struct Model {
    std::string name;
    int experts_used = 0;  // by one token in one layer
    std::unique_ptr<Source> source;
    std::vector<std::unique_ptr<Layer>> layers;
    SlotMemory memory;
    std::atomic<int32_t> loads{0};                  // queued or being read
    std::atomic<Operation *> spare{nullptr};        // the last operation, for the next one
    std::vector<std::unique_ptr<Operation>> operations;  // all ever made; guarded by the cache's lock
    std::vector<Operation *> spares;                     // guarded by the cache's lock

    Model();
    ~Model();

    uint64_t unit_count() const;
    uint64_t largest_unit_bytes() const;
    uint64_t smallest_unit_bytes() const;
    uint64_t token_bytes() const;  // slots for one token: every layer's chosen units
    uint64_t token_units() const;
    Layer * layer(int index) const;
};

// Layers and units from tensors; layers whose tensors disagree about the number of experts are an error (`why`).
bool build_layers(Model * model, const std::vector<TensorSpec> & tensors, std::string * why);

}  // namespace expert_cache
