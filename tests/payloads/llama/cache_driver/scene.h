// What the scenarios share: made models, teams of compute threads that check every byte, a simple LRU to compare with.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache.h"
#include "fake_source.h"

namespace driver {

using expert_cache::Cache;
using expert_cache::Config;
using expert_cache::Kind;
using expert_cache::Layer;
using expert_cache::Model;
using expert_cache::TensorSpec;

using Random = std::mt19937_64;
inline uint64_t below(Random & random, uint64_t n) { return random() % n; }

[[noreturn]] inline void complain(const std::string & what) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
    fflush(stderr);
    _Exit(1);
}
inline void check(bool ok, const std::string & what) {
    if (!ok) {
        complain(what);
    }
}

struct Shape {
    int layers = 3;
    int experts = 12;
    int used = 3;
    bool merged = false;
    bool odd = true;         // slices and offsets that are no multiples of 4 KiB
    bool mixed_sizes = false;  // another slice size in every layer
    uint64_t slice = 9000;
};

struct Scene {
    uint64_t salt = 0;
    uint64_t file_bytes = 0;
    std::vector<TensorSpec> specs;
    std::vector<Kind> kinds;  // in execution order

    const TensorSpec & spec(int layer, Kind kind) const {
        for (const TensorSpec & s : specs) {
            if (s.layer == layer && s.kind == kind) {
                return s;
            }
        }
        complain("no such tensor");
    }
};

// Tensors one after another in two files; the last slice of each file ends where the file ends.
inline Scene make_scene(const Shape & shape, uint64_t salt, Random & random) {
    Scene scene;
    scene.salt = salt;
    scene.kinds = shape.merged ? std::vector<Kind>{expert_cache::kGateUp, expert_cache::kDown}
                               : std::vector<Kind>{expert_cache::kGate, expert_cache::kUp, expert_cache::kDown};
    uint64_t at[2] = {0, 0};
    for (int layer = 0; layer < shape.layers; ++layer) {
        for (Kind kind : scene.kinds) {
            TensorSpec spec;
            spec.layer = layer + 1;  // layers need not start at 0
            spec.kind = kind;
            spec.file = static_cast<int>(below(random, 2));
            spec.slice_bytes = shape.slice + (kind == expert_cache::kDown ? 1024 : 0) +
                               (shape.mixed_sizes ? static_cast<uint64_t>(layer) * 5000 : 0);
            spec.slice_bytes = shape.odd ? spec.slice_bytes / 8 * 8 : (spec.slice_bytes + 4095) / 4096 * 4096;
            const uint64_t gap = shape.odd ? 32 * below(random, 300) : 4096 * below(random, 3);
            spec.offset = at[spec.file] + gap;
            spec.experts = shape.experts;
            at[spec.file] = spec.offset + spec.slice_bytes * static_cast<uint64_t>(shape.experts);
            scene.specs.push_back(spec);
        }
    }
    scene.file_bytes = std::max(at[0], at[1]);
    return scene;
}

inline std::unique_ptr<Model> make_model(const Scene & scene, const Shape & shape, Faults * faults, uint64_t seed) {
    std::unique_ptr<Model> model(new Model);
    model->name = "made-" + std::to_string(scene.salt);
    model->experts_used = shape.used;
    model->source.reset(new FakeSource(scene.salt, scene.file_bytes, faults, seed));
    return model;
}

inline void quiet(expert_cache::Severity, const std::string &) {}

// All threads arrive before any goes on.
class Barrier {
public:
    explicit Barrier(int n) : n_(n) {}
    void wait() {
        std::unique_lock<std::mutex> guard(lock_);
        const uint64_t round = round_;
        if (++arrived_ == n_) {
            arrived_ = 0;
            ++round_;
            all_.notify_all();
            return;
        }
        all_.wait(guard, [&] { return round_ != round; });
    }

private:
    const int n_;
    int arrived_ = 0;
    uint64_t round_ = 0;
    std::mutex lock_;
    std::condition_variable all_;
};

// Compute threads that run one operation after another, as ggml does.
class Team {
public:
    Team(Cache & cache, int threads) : cache_(cache), threads_(threads), barrier_(threads) {}

    struct Step {
        Layer * layer = nullptr;
        Kind kind = expert_cache::kGate;
        std::vector<int64_t> rows;
        const TensorSpec * spec = nullptr;
        uint64_t salt = 0;
    };

    // Steps run in order; a step whose read fails ends the run, as it ends a graph. Returns the steps that were done.
    size_t run(const std::vector<Step> & steps) {
        std::atomic<size_t> done{0};
        std::atomic<bool> failed{false};
        expert_cache::Operation * op = nullptr;
        auto work = [&](int thread) {
            for (const Step & step : steps) {
                if (thread == 0) {
                    op = cache_.begin(*step.layer, step.kind, step.rows.data(), threads_);
                }
                barrier_.wait();
                if (!one(op, step, thread)) {
                    failed = true;
                }
                barrier_.wait();
                if (failed) {
                    break;
                }
                if (thread == 0) {
                    ++done;
                }
            }
        };
        std::vector<std::thread> others;
        for (int thread = 1; thread < threads_; ++thread) {
            others.emplace_back(work, thread);
        }
        work(0);
        for (std::thread & other : others) {
            other.join();
        }
        return done;
    }

private:
    bool one(expert_cache::Operation * op, const Step & step, int thread) {
        expert_cache_cursor cursor = {};
        cursor.current = -1;
        cursor.thread = thread;
        std::vector<bool> seen(step.rows.size(), false);
        for (;;) {
            const char * data = nullptr;
            const int32_t expert = cache_.next(op, &cursor, &data);
            if (expert == Cache::kReadFailed) {
                return false;
            }
            if (expert == Cache::kEnd) {
                break;
            }
            check(step.rows[static_cast<size_t>(expert)] > 0, "an expert was delivered that nobody asked for");
            check(!seen[static_cast<size_t>(expert)], "an expert was delivered twice");
            seen[static_cast<size_t>(expert)] = true;
            const TensorSpec & spec = *step.spec;
            const uint64_t at = spec.offset + static_cast<uint64_t>(expert) * spec.slice_bytes;
            check(holds(step.salt, spec.file, at, data, spec.slice_bytes),
                  "wrong bytes: layer " + std::to_string(spec.layer) + " kind " + std::to_string(spec.kind) +
                      " expert " + std::to_string(expert));
        }
        for (size_t e = 0; e < seen.size(); ++e) {
            check(seen[e] == (step.rows[e] > 0), "expert " + std::to_string(e) + " was left out");
        }
        return true;
    }

    Cache & cache_;
    const int threads_;
    Barrier barrier_;
};

// A token or batch through all layers: each layer's kinds in order, over one set of experts a layer.
inline std::vector<Team::Step> pass_over(const Scene & scene, const Model & model, int distinct, Random & random) {
    std::vector<Team::Step> steps;
    for (const auto & layer : model.layers) {
        std::vector<int64_t> rows(static_cast<size_t>(layer->experts), 0);
        for (int chosen = 0; chosen < distinct;) {
            // Skewed: the lower numbers are liked more.
            const uint64_t a = below(random, rows.size()), b = below(random, rows.size());
            int64_t & row = rows[std::min(a, b)];
            chosen += row == 0 ? 1 : 0;
            row = 1 + static_cast<int64_t>(below(random, 3));
        }
        for (Kind kind : scene.kinds) {
            steps.push_back({layer.get(), kind, rows, &scene.spec(layer->index, kind), scene.salt});
        }
    }
    return steps;
}

// The rule, in the plainest words: what is there is used first, then what is missing pushes out the oldest.
class PlainLru {
public:
    explicit PlainLru(uint64_t budget) : budget_(budget) {}
    uint64_t hits = 0, misses = 0, evictions = 0;

    void pass(int layer, uint64_t unit_bytes, const std::vector<int64_t> & rows) {
        std::vector<uint64_t> missing;
        for (size_t e = 0; e < rows.size(); ++e) {
            const uint64_t key = static_cast<uint64_t>(layer) * 4096 + e;
            if (rows[e] == 0) {
                continue;
            }
            const auto it = std::find_if(order_.begin(), order_.end(), [&](const auto & u) { return u.first == key; });
            if (it == order_.end()) {
                missing.push_back(key);
            } else {
                order_.splice(order_.end(), order_, it);
                ++hits;
            }
        }
        for (uint64_t key : missing) {
            ++misses;
            while (live_ + unit_bytes > budget_) {
                live_ -= order_.front().second;
                order_.pop_front();
                ++evictions;
            }
            order_.emplace_back(key, unit_bytes);
            live_ += unit_bytes;
        }
    }
    uint64_t live() const { return live_; }

private:
    const uint64_t budget_;
    uint64_t live_ = 0;
    std::list<std::pair<uint64_t, uint64_t>> order_;  // oldest first
};

}  // namespace driver
