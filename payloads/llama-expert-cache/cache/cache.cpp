// Models come and go.
#include "cache.h"

#include <algorithm>

#include "report.h"

namespace expert_cache {

namespace {

std::string mib(uint64_t bytes) {
    const uint64_t tenths = (bytes * 10 + (1U << 19)) >> 20;
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

}  // namespace

Cache::Cache(const Config & config, Log log) : config_(config), log_(std::move(log)) {}

Cache::~Cache() {
    queue_.close();
    for (std::thread & reader : readers_) {
        reader.join();
    }
}

bool Cache::can_serve(const Model & model, std::string * why) const {
    if (model.layers.empty()) {
        *why = "it has no expert tensors on the CPU";
        return false;
    }
    uint64_t one_layer = 0;
    for (const auto & layer : model.layers) {
        if (layer->experts > EXPERT_CACHE_MAX_EXPERTS) {
            *why = "layer " + std::to_string(layer->index) + " has " + std::to_string(layer->experts) +
                   " experts, more than the " + std::to_string(EXPERT_CACHE_MAX_EXPERTS) + " that the cache can hold";
            return false;
        }
        const int used = std::min(model.experts_used, layer->experts);
        one_layer = std::max(one_layer, static_cast<uint64_t>(used) * layer->unit_bytes);
    }
    const uint64_t least = config_.small_budget ? one_layer : model.token_bytes();
    if (config_.budget_bytes < least) {
        *why = (config_.small_budget
                    ? "one layer's experts of a token take " + mib(one_layer)
                    : "one token uses " + std::to_string(model.token_units()) + " units = " + mib(least)) +
               ", more than the budget of " + mib(config_.budget_bytes) +
               (config_.small_budget ? "" : ": every unit would be gone before it is used again") +
               "; set LLAMA_EXPERT_CACHE_MIB to " + std::to_string((least + (1U << 20) - 1) >> 20) + " or more";
        return false;
    }
    return true;
}

void Cache::log_served(const Model & model) const {
    uint64_t all = 0;
    for (const auto & layer : model.layers) {
        all += static_cast<uint64_t>(layer->experts) * layer->unit_bytes;
    }
    const uint64_t units = model.unit_count();
    const uint64_t slots = std::min(units, config_.budget_bytes * units / all);
    log_(Severity::kInfo,
         model.name + ": " + std::to_string(model.layers.size()) + " layers, " + std::to_string(units) + " units of " +
             mib(model.smallest_unit_bytes()) + " to " + mib(model.largest_unit_bytes()) + ", budget " +
             mib(config_.budget_bytes) + " = " + std::to_string(slots) + " units (" +
             std::to_string(slots * 100 / units) + " %), one token uses " + std::to_string(model.token_units()) +
             " = " + mib(model.token_bytes()) + "; " + std::to_string(config_.readers) + " readers, " +
             std::to_string(config_.chunk_bytes / 1024) + " KiB chunks");
}

Model * Cache::add(std::unique_ptr<Model> model, const std::vector<TensorSpec> & tensors) {
    std::string why;
    const bool fits = build_layers(model.get(), tensors, &why) && can_serve(*model, &why);
    const uint64_t slots =
        fits ? std::min(model->unit_count(), config_.budget_bytes / model->smallest_unit_bytes()) : 0;
    const uint64_t stride = fits ? model->largest_unit_bytes() : 0;
    if (!fits || !model->memory.reserve(slots, stride, slots * stride <= config_.budget_bytes, &why)) {
        refuse(model->name, why);
        return nullptr;
    }
    log_served(*model);
    std::lock_guard<std::mutex> guard(mutex_);
    start_readers();
    models_.push_back(std::move(model));
    return models_.back().get();
}

void Cache::refuse(const std::string & model_name, const std::string & why) {
    log_(Severity::kWarning, model_name + ": not served, llama.cpp's own path is used: " + why);
    std::lock_guard<std::mutex> guard(mutex_);
    remember(&closed_, refused_json(model_name, why));
}

// All units of a model give up their slots. False: some are in use, which a caller must not do.
bool Cache::drop_units(Model * model) {
    for (const auto & layer : model->layers) {
        for (int32_t e = 0; e < layer->experts; ++e) {
            Unit & unit = layer->units[static_cast<size_t>(e)];
            int32_t pins = 0;
            if (unit.pins.compare_exchange_strong(pins, kNotResident, std::memory_order_seq_cst)) {
                lru_.remove(&unit);
                live_bytes_ -= layer->unit_bytes;
            } else if (pins != kNotResident) {
                return false;
            }
        }
    }
    return true;
}

void Cache::remove(Model * model) {
    std::unique_lock<std::mutex> guard(mutex_);
    removing_.fetch_add(1, std::memory_order_seq_cst);
    model_idle_.wait(guard, [model] { return model->loads.load(std::memory_order_seq_cst) == 0; });
    removing_.fetch_sub(1, std::memory_order_seq_cst);
    apply_touches();
    const auto at = std::find_if(models_.begin(), models_.end(), [model](const auto & m) { return m.get() == model; });
    if (at == models_.end()) {
        return;
    }
    if (!drop_units(model)) {
        log_(Severity::kError, model->name + ": freed while it is in use; its slots stay");
        (void) at->release();
    } else {
        remember(&closed_, model_json(*model, "closed"));
    }
    models_.erase(at);
    const bool more = waiting_count_.load(std::memory_order_seq_cst) != 0;
    guard.unlock();
    if (more) {
        admit_waiting();
    }
}

uint64_t Cache::live_bytes() {
    std::lock_guard<std::mutex> guard(mutex_);
    return live_bytes_;
}

uint64_t Cache::backed_bytes() {
    std::lock_guard<std::mutex> guard(mutex_);
    uint64_t bytes = 0;
    for (const auto & model : models_) {
        bytes += model->memory.backed_bytes();
    }
    return bytes;
}

std::string Cache::json() {
    std::lock_guard<std::mutex> guard(mutex_);
    return cache_json(config_, live_bytes_, models_, closed_);
}

}  // namespace expert_cache
