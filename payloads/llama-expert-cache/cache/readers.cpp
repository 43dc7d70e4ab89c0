// The reader threads: take a chunk, read it, count it down.
#include <chrono>
#include <cstring>

#include "cache.h"
#include "futex.h"

namespace expert_cache {

void Cache::start_readers() {
    for (int i = static_cast<int>(readers_.size()); i < config_.readers; ++i) {
        readers_.emplace_back([this] { read_loop(); });
    }
}

void Cache::read_loop() {
    Chunk chunk;
    while (queue_.pop(&chunk)) {
        read_chunk(chunk);
    }
}

namespace {

// One step from "chunks to come" to the next state. Every chunk counts down; the slice's first failure is noted.
int32_t count_down(std::atomic<int32_t> & progress, bool failed, bool * first_failure) {
    int32_t now = progress.load(std::memory_order_relaxed);
    int32_t then = 0;
    do {
        *first_failure = failed && !is_failed(now);
        then = now - 1 + (*first_failure ? kFailure : 0);
    } while (!progress.compare_exchange_weak(now, then, std::memory_order_acq_rel, std::memory_order_relaxed));
    return then;
}

std::string failure_text(const Unit & unit, Kind kind, const Window & piece, int64_t error) {
    static const char * const kNames[kKinds] = {"gate", "gate_up", "up", "down"};
    return unit.layer->model->name + ": reading layer " + std::to_string(unit.layer->index) + " " + kNames[kind] +
           " expert " + std::to_string(unit.expert) + " (" + std::to_string(piece.bytes()) + " bytes at offset " +
           std::to_string(piece.begin) + ") failed: " + strerror(static_cast<int>(error));
}

}  // namespace

void Cache::read_chunk(const Chunk & chunk) {
    using Clock = std::chrono::steady_clock;
    Unit & unit = *chunk.unit;
    Layer & layer = *unit.layer;
    const Part & part = layer.parts[chunk.kind];
    const Window window = part.window(unit.expert);
    const Window piece = chunk_of(window, config_.chunk_bytes, chunk.index);
    const uint64_t slice_end = part.offset + static_cast<uint64_t>(unit.expert + 1) * part.slice_bytes;
    const uint64_t needed = (slice_end < piece.end ? slice_end : piece.end) - piece.begin;
    char * dst = unit.base + part.slot_offset + (piece.begin - window.begin);

    const Clock::time_point start = Clock::now();
    const int64_t got = read_fully(*layer.model->source, part.file, dst, piece.begin, piece.bytes(), needed);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    expert_cache::add(layer.counters.reads, 1);
    expert_cache::add(layer.counters.read_ns, static_cast<uint64_t>(took));
    expert_cache::add(got < 0 ? layer.counters.read_errors : layer.counters.bytes_read,
                      got < 0 ? 1 : static_cast<uint64_t>(got));
    bool first_failure = false;
    const std::string text = got < 0 ? failure_text(unit, chunk.kind, piece, -got) : std::string();
    const bool finished = is_finished(count_down(unit.progress[chunk.kind], got < 0, &first_failure));
    if (first_failure) {
        log_(Severity::kError, text);
    }
    if (finished) {
        finish_load(&unit, chunk.kind);
    }
}

void Cache::finish_load(Unit * unit, Kind kind) {
    Model & model = *unit->layer->model;
    unit->pins.fetch_sub(kLoadPin, std::memory_order_seq_cst);
    futex_wake_all(unit->progress[kind]);
    if (waiting_count_.load(std::memory_order_seq_cst) != 0) {
        admit_waiting();
    }
    // The model may be gone as soon as its last load is counted.
    if (model.loads.fetch_sub(1, std::memory_order_seq_cst) == 1 && removing_.load(std::memory_order_seq_cst) != 0) {
        std::lock_guard<std::mutex> guard(mutex_);
        model_idle_.notify_all();
    }
}

}  // namespace expert_cache
