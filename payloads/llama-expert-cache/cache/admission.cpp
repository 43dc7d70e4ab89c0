// Who has a slot: eviction in exact least-recently-used order, and what is to be read. All with the cache's lock held.
#include <sched.h>

#include "cache.h"

namespace expert_cache {

void Cache::apply_touches() {
    touches_.drain([this](Unit * unit) {
        if (unit->pins.load(std::memory_order_relaxed) != kNotResident) {
            lru_.touch(unit);
        }
    });
}

namespace {

// False: in use. A reader that has finished a load lets go of it in the next instruction; it is waited for, else the
// order of eviction would hang on that moment.
bool claim(Unit * unit) {
    int32_t pins = 0;
    while (!unit->pins.compare_exchange_strong(pins, kNotResident, std::memory_order_seq_cst)) {
        if (pins % kLoadPin != 0 || !unit->all_finished()) {
            return false;
        }
        sched_yield();
        pins = 0;
    }
    return true;
}

}  // namespace

bool Cache::evict_oldest() {
    // Units in use are few and were used lately, so they stand at the other end.
    for (Unit * unit = lru_.oldest(); unit != nullptr; unit = unit->newer) {
        if (!claim(unit)) {
            continue;
        }
        Layer & layer = *unit->layer;
        for (auto & progress : unit->progress) {
            progress.store(kAbsent, std::memory_order_relaxed);
        }
        lru_.remove(unit);
        layer.model->memory.give(unit->slot);
        unit->slot = -1;
        unit->base = nullptr;
        live_bytes_ -= layer.unit_bytes;
        expert_cache::add(layer.counters.evictions, 1);
        return true;
    }
    return false;
}

void Cache::release_memory_over_budget() {
    uint64_t backed = 0;
    for (auto & model : models_) {
        backed += model->memory.backed_bytes();
    }
    for (auto & model : models_) {
        while (backed > config_.budget_bytes && model->memory.has_idle_memory()) {
            backed -= model->memory.backed_bytes();
            model->memory.release_idle();
            backed += model->memory.backed_bytes();
        }
    }
}

// A slot for `unit`, held once by the caller. False: everything else is in use.
bool Cache::make_resident(Unit * unit) {
    Layer & layer = *unit->layer;
    SlotMemory & memory = layer.model->memory;
    while (live_bytes_ + layer.unit_bytes > config_.budget_bytes || !memory.has_free()) {
        if (!evict_oldest()) {
            return false;
        }
    }
    unit->slot = memory.take(layer.unit_bytes);
    unit->base = memory.base(unit->slot);
    live_bytes_ += layer.unit_bytes;
    release_memory_over_budget();
    lru_.push_newest(unit);
    unit->pins.store(1, std::memory_order_release);
    return true;
}

bool Cache::admit(Unit * unit, unsigned kinds) {
    if (unit->try_pin()) {  // somebody else was quicker
        lru_.touch(unit);
    } else if (!make_resident(unit)) {
        return false;
    }
    schedule(unit, kinds);
    return true;
}

// The caller holds the unit. Slices that are there or on their way stay as they are; a failed one is tried again.
void Cache::schedule(Unit * unit, unsigned kinds) {
    Layer & layer = *unit->layer;
    for (int k = 0; k < kKinds; ++k) {
        const Part & part = layer.parts[k];
        std::atomic<int32_t> & progress = unit->progress[static_cast<size_t>(k)];
        const int32_t now = progress.load(std::memory_order_acquire);
        if ((kinds & (1U << k)) == 0 || !part.present || !(now == kAbsent || (is_finished(now) && is_failed(now)))) {
            continue;
        }
        Load & load = unit->loads[static_cast<size_t>(k)];
        load.next_chunk = 0;
        load.chunks = chunk_count(part.window(unit->expert), config_.chunk_bytes);
        progress.store(load.chunks, std::memory_order_release);
        unit->pins.fetch_add(kLoadPin, std::memory_order_relaxed);
        layer.model->loads.fetch_add(1, std::memory_order_relaxed);
        scheduled_[k].push_back(&load);
    }
}

// All units' slices of the running kind, then those of the next kind, and so on.
void Cache::queue_scheduled(Kind running) {
    queue_.push(scheduled_[running], ReadQueue::kNow);
    for (int k = 0; k < kKinds; ++k) {
        if (k != running) {
            queue_.push(scheduled_[k], ReadQueue::kSoon);
        }
        scheduled_[k].clear();
    }
}

void Cache::admit_at_begin(Operation * op) {
    apply_touches();
    for (Unit * unit : op->partial) {
        lru_.touch(unit);
        schedule(unit, op->kinds_to_load);
    }
    int32_t admitted = op->at_begin;
    waiting_count_.fetch_add(1, std::memory_order_seq_cst);  // before the search: who lets go after it will look at this
    while (admitted < op->count && admit(op->entries[static_cast<size_t>(admitted)].unit, op->kinds_to_load)) {
        ++admitted;
    }
    op->at_begin = admitted;
    op->admitted.store(admitted, std::memory_order_release);
    if (admitted < op->count) {
        waiting_.push_back(op);
    } else {
        waiting_count_.fetch_sub(1, std::memory_order_seq_cst);
    }
    queue_scheduled(op->kind);
}

}  // namespace expert_cache
