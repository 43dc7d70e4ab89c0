// How operations use the cache: begin, visit every expert once, let go.
#include <chrono>

#include "cache.h"
#include "futex.h"

namespace expert_cache {

namespace {

using Clock = std::chrono::steady_clock;

uint64_t ns_since(Clock::time_point start) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

uint64_t mixed(uint64_t n) {
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
    return n ^ (n >> 31);
}

bool is_visited(const expert_cache_cursor & cursor, int32_t entry) {
    return (cursor.visited[entry / 64] >> (entry % 64) & 1U) != 0;
}

}  // namespace

Operation * Cache::take_operation(Model * model) {
    Operation * op = model->spare.exchange(nullptr, std::memory_order_acquire);
    if (op != nullptr) {
        return op;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    if (!model->spares.empty()) {
        op = model->spares.back();
        model->spares.pop_back();
        return op;
    }
    int32_t most = 0;
    for (const auto & layer : model->layers) {
        most = layer->experts > most ? layer->experts : most;
    }
    model->operations.emplace_back(new Operation(most));
    return model->operations.back().get();
}

// The last of the operation's threads is through.
void Cache::finish(Operation * op) {
    Model * model = op->layer->model;
    Operation * none = nullptr;
    if (!model->spare.compare_exchange_strong(none, op, std::memory_order_release, std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> guard(mutex_);
        model->spares.push_back(op);
    }
}

// The first kind of a token (or batch) counts hits and misses and sets the order of use; the others follow it.
// Also leaves in kinds_to_load what this token has still to run, with the running kind.
bool Cache::starts_pass(Operation * op) {
    uint64_t hash = 0;  // of the set: entries stand in another order for each kind
    for (int32_t i = 0; i < op->count; ++i) {
        hash += mixed(static_cast<uint64_t>(op->entries[static_cast<size_t>(i)].unit->expert) + 1);
    }
    Pass & pass{op->layer->pass};
    const unsigned bit = 1U << op->kind;
    std::lock_guard<std::mutex> guard(pass.lock);
    const bool first = pass.experts_hash != hash || (pass.kinds_done & bit) != 0;
    pass.experts_hash = hash;
    pass.kinds_done = first ? bit : pass.kinds_done | bit;
    const unsigned all = (1U << kKinds) - 1;
    const bool all_fit = static_cast<uint64_t>(op->count) * op->layer->unit_bytes <= config_.budget_bytes;
    op->kinds_to_load = all_fit ? (all & ~pass.kinds_done) | bit : bit;
    return first;
}

void Cache::touch(Unit * unit) {
    while (!touches_.push(unit)) {
        std::lock_guard<std::mutex> guard(mutex_);
        apply_touches();
    }
}

// Each unit is held and its slice's state read exactly once here; what a unit was found as is what it stays.
void Cache::sort_entries(Operation * op, const int64_t * rows) {
    op->ready.clear();
    op->coming.clear();
    op->partial.clear();
    op->cold.clear();
    for (int32_t e = 0; e < op->layer->experts; ++e) {
        if (rows[e] == 0) {
            continue;
        }
        Unit * unit = &op->layer->units[static_cast<size_t>(e)];
        if (!unit->try_pin()) {
            op->cold.push_back(unit);
            continue;
        }
        const int32_t progress = unit->progress[op->kind].load(std::memory_order_acquire);
        const bool usable = progress >= 0 && !is_failed(progress);
        (!usable ? op->partial : progress == 0 ? op->ready : op->coming).push_back(unit);
    }
    op->count = 0;
    for (const auto * group : {&op->ready, &op->coming, &op->partial, &op->cold}) {
        for (Unit * unit : *group) {
            Entry & entry = op->entries[static_cast<size_t>(op->count++)];
            entry.unit = unit;
            entry.users.store(op->threads, std::memory_order_relaxed);
        }
    }
    op->at_begin = op->count - static_cast<int32_t>(op->cold.size());
}

void Cache::count_pass(Operation * op, bool first) {
    Counters & counters = op->layer->counters;
    const uint64_t there = op->ready.size() + op->coming.size();
    const uint64_t missing = op->partial.size() + op->cold.size();
    if (!first) {
        expert_cache::add(counters.reloads, missing);
        return;
    }
    expert_cache::add(counters.hits, there);
    expert_cache::add(counters.misses, missing);
    for (const auto * group : {&op->ready, &op->coming}) {
        for (Unit * unit : *group) {
            touch(unit);
        }
    }
}

Operation * Cache::begin(Layer & layer, Kind kind, const int64_t * rows, int32_t threads) {
    Operation * op = take_operation(layer.model);
    op->layer = &layer;
    op->kind = kind;
    op->threads = threads;
    sort_entries(op, rows);
    op->threads_left.store(threads, std::memory_order_relaxed);
    op->admitted.store(op->at_begin, std::memory_order_relaxed);
    count_pass(op, starts_pass(op));
    if (!op->coming.empty()) {
        queue_.hurry(op->coming, kind);
    }
    if (!op->partial.empty() || !op->cold.empty()) {
        std::lock_guard<std::mutex> guard(mutex_);
        admit_at_begin(op);
    }
    return op;
}

Operation * Cache::begin_warmup(Layer & layer, int32_t threads) {
    Operation * op = take_operation(layer.model);
    op->layer = &layer;
    op->threads = threads;
    op->count = op->at_begin = 0;
    op->admitted.store(0, std::memory_order_relaxed);
    op->threads_left.store(threads, std::memory_order_relaxed);
    expert_cache::add(layer.counters.warmups, 1);
    return op;
}

void Cache::unpin(Unit * unit) {
    unit->pins.fetch_sub(1, std::memory_order_seq_cst);
    if (waiting_count_.load(std::memory_order_seq_cst) != 0) {
        admit_waiting();
    }
}

void Cache::leave(Operation * op, int32_t entry) {
    Entry & e = op->entries[static_cast<size_t>(entry)];
    Unit * unit = e.unit;
    if (e.users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        unpin(unit);
    }
}

void Cache::admit_waiting() {
    std::lock_guard<std::mutex> guard(mutex_);
    apply_touches();
    while (!waiting_.empty()) {
        Operation * op = waiting_.front();
        int32_t admitted = op->admitted.load(std::memory_order_relaxed);
        const int32_t before = admitted;
        while (admitted < op->count && admit(op->entries[static_cast<size_t>(admitted)].unit, op->kinds_to_load)) {
            ++admitted;
        }
        queue_scheduled(op->kind);
        const bool all = admitted == op->count;
        if (all) {
            waiting_.erase(waiting_.begin());
            waiting_count_.fetch_sub(1, std::memory_order_seq_cst);
        }
        if (admitted != before) {
            // The operation's threads may finish it as soon as they see this; it is not looked at again.
            op->admitted.store(admitted, std::memory_order_release);
            futex_wake_all(op->admitted);
        }
        if (!all) {
            return;
        }
    }
}

void Cache::fail(Operation * op) {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        const int32_t admitted = op->admitted.load(std::memory_order_relaxed);
        if ((admitted & kOperationFailed) != 0) {
            return;
        }
        for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
            if (*it == op) {
                waiting_.erase(it);
                waiting_count_.fetch_sub(1, std::memory_order_seq_cst);
                break;
            }
        }
        op->admitted.store(admitted | kOperationFailed, std::memory_order_release);
    }
    futex_wake_all(op->admitted);
    if (waiting_count_.load(std::memory_order_seq_cst) != 0) {
        admit_waiting();  // others that stood behind it
    }
}

// A read failed: this thread lets go of all that it has not visited.
int32_t Cache::abandon(Operation * op, expert_cache_cursor * cursor) {
    const int32_t admitted = op->admitted.load(std::memory_order_acquire) & ~kOperationFailed;
    for (int32_t entry = 0; entry < admitted; ++entry) {
        if (!is_visited(*cursor, entry)) {
            leave(op, entry);
        }
    }
    if (op->threads_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        finish(op);
    }
    return kReadFailed;
}

// Until the entry has a slot and its slice is there. False: a read failed.
bool Cache::wait_for(Operation * op, int32_t entry, bool first_thread) {
    std::atomic<int32_t> & progress = op->entries[static_cast<size_t>(entry)].unit->progress[op->kind];
    int32_t admitted = op->admitted.load(std::memory_order_acquire);
    int32_t now = admitted > entry ? progress.load(std::memory_order_acquire) : kAbsent;
    if (admitted > entry && is_finished(now)) {
        return !is_failed(now);
    }
    const Clock::time_point start = Clock::now();
    for (; admitted <= entry; admitted = op->admitted.load(std::memory_order_acquire)) {
        futex_wait(op->admitted, admitted);
    }
    const bool has_slot = (admitted & kOperationFailed) == 0;
    for (now = progress.load(std::memory_order_acquire); has_slot && !is_finished(now);
         now = progress.load(std::memory_order_acquire)) {
        futex_wait(progress, now);
    }
    Counters & counters = op->layer->counters;
    const uint64_t waited = ns_since(start);
    expert_cache::add(counters.waits, 1);
    expert_cache::add(counters.wait_ns, waited);
    expert_cache::add(counters.first_wait_ns, first_thread ? waited : 0);
    return has_slot && !is_failed(now);
}

int32_t Cache::visit(Operation * op, expert_cache_cursor * cursor, int32_t entry, const char ** data) {
    const Unit & unit = *op->entries[static_cast<size_t>(entry)].unit;
    cursor->current = entry;
    cursor->visited[entry / 64] |= 1ULL << (entry % 64);
    *data = op->layer->parts[op->kind].data(unit.base, unit.expert);
    return unit.expert;
}

int32_t Cache::next(Operation * op, expert_cache_cursor * cursor, const char ** data) {
    if (cursor->current >= 0) {
        leave(op, cursor->current);
        cursor->current = -1;
    }
    if ((op->admitted.load(std::memory_order_acquire) & kOperationFailed) != 0) {
        return abandon(op, cursor);
    }
    // What is ready is computed at once; all else waits for its turn below. There is no third case.
    for (; cursor->stage == 0 && cursor->index < op->at_begin; ++cursor->index) {
        const Unit * unit = op->entries[static_cast<size_t>(cursor->index)].unit;
        if (unit->progress[op->kind].load(std::memory_order_acquire) == 0) {
            return visit(op, cursor, cursor->index++, data);
        }
    }
    if (cursor->stage == 0) {
        cursor->stage = 1;
        cursor->index = 0;
    }
    while (cursor->index < op->count && is_visited(*cursor, cursor->index)) {
        ++cursor->index;
    }
    if (cursor->index == op->count) {
        if (op->threads_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            finish(op);
        }
        return kEnd;
    }
    const int32_t entry = cursor->index++;
    if (!wait_for(op, entry, cursor->thread == 0)) {
        fail(op);
        return abandon(op, cursor);
    }
    return visit(op, cursor, entry, data);
}

}  // namespace expert_cache
