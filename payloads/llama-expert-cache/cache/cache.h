// The cache of expert slices: budget, least-recently-used order, readers, and the operations that use it.
//
// Locks: `mutex_` guards who has a slot (LRU list, slots, waiting operations, the list of models). A hit takes no lock
// but its own layer's. Order: mutex_ before the read queue's lock; a layer's lock is never held together with another.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "config.h"
#include "cursor.h"
#include "model.h"
#include "operation.h"
#include "read_queue.h"
#include "touch_log.h"

namespace expert_cache {

enum class Severity { kInfo, kWarning, kError };
using Log = std::function<void(Severity, const std::string &)>;

class Cache {
public:
    Cache(const Config & config, Log log);
    ~Cache();
    Cache(const Cache &) = delete;
    Cache & operator=(const Cache &) = delete;

    // Takes the model over. Null when it cannot be served; the reason (with numbers) was logged in one line.
    Model * add(std::unique_ptr<Model> model, const std::vector<TensorSpec> & tensors);
    // Waits for reads that are still under way. No operation on the model may be running.
    void remove(Model * model);
    // A model that is left to llama.cpp's own path: one log line, one line in the counters.
    void refuse(const std::string & model_name, const std::string & why);

    // By one thread, before the others: `rows[e]` > 0 for each expert that is wanted.
    Operation * begin(Layer & layer, Kind kind, const int64_t * rows, int32_t threads);
    // By one thread, when every expert is asked for by a warm-up run: an operation without entries.
    Operation * begin_warmup(Layer & layer, int32_t threads);

    static constexpr int32_t kEnd = -1;
    static constexpr int32_t kReadFailed = -2;
    // By each thread until it is told kEnd or kReadFailed: the next expert and the address of its slice, which stays
    // valid until this thread's next call. Blocks while the slice is being read. The cursor starts zeroed, current = -1.
    int32_t next(Operation * op, expert_cache_cursor * cursor, const char ** data);

    const Config & config() const { return config_; }
    std::string json();
    uint64_t live_bytes();
    uint64_t backed_bytes();

private:
    // admission.cpp: all with mutex_ held
    void apply_touches();
    bool evict_oldest();
    bool make_resident(Unit * unit);
    bool admit(Unit * unit, unsigned kinds);
    void schedule(Unit * unit, unsigned kinds);
    void queue_scheduled(Kind running);
    void release_memory_over_budget();
    void admit_at_begin(Operation * op);

    // operations.cpp
    Operation * take_operation(Model * model);
    void finish(Operation * op);
    bool starts_pass(Operation * op);
    void sort_entries(Operation * op, const int64_t * rows);
    void count_pass(Operation * op, bool first);
    void touch(Unit * unit);
    void leave(Operation * op, int32_t entry);
    void unpin(Unit * unit);
    void admit_waiting();
    void fail(Operation * op);
    int32_t abandon(Operation * op, expert_cache_cursor * cursor);
    int32_t visit(Operation * op, expert_cache_cursor * cursor, int32_t entry, const char ** data);
    bool wait_for(Operation * op, int32_t entry, bool first_thread);

    // cache.cpp
    bool can_serve(const Model & model, std::string * why) const;
    void log_served(const Model & model) const;
    bool drop_units(Model * model);

    // readers.cpp
    void start_readers();
    void read_loop();
    void read_chunk(const Chunk & chunk);
    void finish_load(Unit * unit, Kind kind);

    const Config config_;
    const Log log_;

    std::mutex mutex_;
    LruList lru_;
    TouchLog touches_;  // pushed without mutex_, drained with it
    uint64_t live_bytes_ = 0;
    std::vector<std::unique_ptr<Model>> models_;
    std::vector<std::string> closed_;                  // JSON of models that were removed or refused
    std::vector<Operation *> waiting_;                 // for slots, first come first served
    std::vector<Load *> scheduled_[kKinds];            // scratch between schedule() and queue_scheduled()
    std::condition_variable model_idle_;

    std::atomic<int32_t> waiting_count_{0};  // waiting_.size(), or about to be
    std::atomic<int32_t> removing_{0};

    ReadQueue queue_;
    std::vector<std::thread> readers_;
};

}  // namespace expert_cache
