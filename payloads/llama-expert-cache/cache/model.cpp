#include "model.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "operation.h"

namespace expert_cache {

bool parse_expert_tensor(const std::string & name, int * layer, Kind * kind) {
    static const struct {
        const char * text;
        Kind kind;
    } kNames[] = {{"ffn_gate_exps.weight", kGate},
                  {"ffn_gate_up_exps.weight", kGateUp},
                  {"ffn_up_exps.weight", kUp},
                  {"ffn_down_exps.weight", kDown}};
    int end = 0;
    if (sscanf(name.c_str(), "blk.%d.%n", layer, &end) != 1 || end == 0 || *layer < 0) {
        return false;
    }
    for (const auto & known : kNames) {
        if (name.compare(static_cast<size_t>(end), std::string::npos, known.text) == 0) {
            *kind = known.kind;
            return true;
        }
    }
    return false;
}

Model::Model() = default;
Model::~Model() = default;

uint64_t Model::unit_count() const {
    uint64_t n = 0;
    for (const auto & layer : layers) {
        n += static_cast<uint64_t>(layer->experts);
    }
    return n;
}

uint64_t Model::largest_unit_bytes() const {
    uint64_t most = 0;
    for (const auto & layer : layers) {
        most = std::max(most, layer->unit_bytes);
    }
    return most;
}

uint64_t Model::smallest_unit_bytes() const {
    uint64_t least = UINT64_MAX;
    for (const auto & layer : layers) {
        least = std::min(least, layer->unit_bytes);
    }
    return least;
}

uint64_t Model::token_units() const {
    uint64_t n = 0;
    for (const auto & layer : layers) {
        n += static_cast<uint64_t>(std::min(experts_used, layer->experts));
    }
    return n;
}

uint64_t Model::token_bytes() const {
    uint64_t n = 0;
    for (const auto & layer : layers) {
        n += static_cast<uint64_t>(std::min(experts_used, layer->experts)) * layer->unit_bytes;
    }
    return n;
}

Layer * Model::layer(int index) const {
    for (const auto & layer : layers) {
        if (layer->index == index) {
            return layer.get();
        }
    }
    return nullptr;
}

namespace {

void place_parts(Layer * layer) {
    for (Part & part : layer->parts) {
        if (part.present) {
            part.slot_offset = layer->unit_bytes;
            layer->unit_bytes += slot_bytes_for(part.slice_bytes);
        }
    }
}

void make_units(Layer * layer) {
    layer->units.reset(new Unit[static_cast<size_t>(layer->experts)]);
    for (int32_t e = 0; e < layer->experts; ++e) {
        Unit & unit = layer->units[static_cast<size_t>(e)];
        unit.layer = layer;
        unit.expert = e;
        for (int k = 0; k < kKinds; ++k) {
            unit.loads[static_cast<size_t>(k)].unit = &unit;
            unit.loads[static_cast<size_t>(k)].kind = static_cast<Kind>(k);
        }
    }
}

bool add_part(Layer * layer, const TensorSpec & tensor, std::string * why) {
    Part & part = layer->parts[tensor.kind];
    if (part.present || (layer->experts != 0 && layer->experts != tensor.experts)) {
        *why = "layer " + std::to_string(tensor.layer) +
               (part.present ? " has a kind of expert tensor twice" : " has expert tensors of different lengths");
        return false;
    }
    layer->experts = tensor.experts;
    part.present = true;
    part.file = tensor.file;
    part.offset = tensor.offset;
    part.slice_bytes = tensor.slice_bytes;
    return true;
}

}  // namespace

bool build_layers(Model * model, const std::vector<TensorSpec> & tensors, std::string * why) {
    std::map<int, std::unique_ptr<Layer>> by_index;
    for (const TensorSpec & tensor : tensors) {
        auto & layer = by_index[tensor.layer];
        if (!layer) {
            layer.reset(new Layer);
            layer->model = model;
            layer->index = tensor.layer;
        }
        if (!add_part(layer.get(), tensor, why)) {
            return false;
        }
    }
    for (auto & entry : by_index) {
        place_parts(entry.second.get());
        make_units(entry.second.get());
        model->layers.push_back(std::move(entry.second));
    }
    return true;
}

}  // namespace expert_cache
