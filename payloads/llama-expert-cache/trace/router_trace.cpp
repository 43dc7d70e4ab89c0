// Router decisions of an unpatched llama.cpp program, by LD_PRELOAD: LLAMA_ROUTER_TRACE=FILE names the trace.
//
// It stands between the program and libllama: it sets the evaluation callback of every context (and calls the program's own,
// if there is one), and listens to the batch calls to learn which row belongs to which sequence. Nothing that is
// computed is changed. Without the variable it does nothing.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "batches.h"
#include "ggml-backend.h"
#include "llama.h"
#include "trace_file.h"

namespace router_trace {

namespace {

struct LayerRows {
    int32_t layer = 0;
    uint32_t used = 0;
    std::vector<int32_t> row_of;  // empty: all rows of the pass, in order
    std::vector<int32_t> ids;
    uint32_t rows() const { return static_cast<uint32_t>(ids.size() / used); }
};

struct Context {
    llama_context * handle = nullptr;
    uint32_t number = 0;
    int32_t experts = 0;
    int32_t used = 0;
    ggml_backend_sched_eval_callback others = nullptr;
    void * others_data = nullptr;
    bool others_want = false;

    Sequences sequences;
    uint32_t call = 0;
    uint32_t pass = 0;
    bool forced_warm_up = false;
    // A program tries a context out before it serves (an empty run, whether sequences can be cut): a few tokens, after
    // which it clears the memory. Until a call was more than that, records wait for what comes next.
    bool only_trials = true;
    bool maybe_trial = false;
    std::vector<Bytes> held;

    // The pass that is running.
    const ggml_tensor * tokens = nullptr;
    const ggml_tensor * positions = nullptr;
    const ggml_tensor * outputs = nullptr;
    std::vector<Row> rows;
    std::vector<LayerRows> layers;
};

constexpr char kTopK[] = "ffn_moe_topk-";
constexpr size_t kWarmUpByte = 20;
constexpr size_t kMostTrialTokens = 2;

struct State {
    std::mutex lock;
    TraceFile file;
    bool tried = false;
    uint32_t contexts = 0;
    uint64_t passes = 0;
    std::unordered_map<llama_context *, std::unique_ptr<Context>> by_handle;
    std::unordered_map<const llama_batch_ext *, std::vector<Entry>> batches;
};

// Never destroyed: threads of the program may still call while it ends.
State & state() {
    static State * s = new State;
    return *s;
}

template <typename F> F real(const char * name) {
    void * found = dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        fprintf(stderr, "router trace: this libllama has no %s\n", name);
        abort();
    }
    F f;
    memcpy(&f, &found, sizeof f);
    return f;
}

std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (const char c : text) {
        char escaped[8];
        if (c == '"' || c == '\\') {
            out += {'\\', c};
        } else if (static_cast<unsigned char>(c) < 0x20) {
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
            out += escaped;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

bool is_on() {
    State & s = state();
    if (!s.tried) {
        s.tried = true;
        const char * name = getenv("LLAMA_ROUTER_TRACE");
        if (name != nullptr && *name != '\0' && s.file.open(name)) {
            timespec now{};
            clock_gettime(CLOCK_REALTIME, &now);
            char id[64];
            snprintf(id, sizeof id, "%lld.%09ld-%d", static_cast<long long>(now.tv_sec), now.tv_nsec, getpid());
            const std::string text = std::string("{\"run\":\"") + id + "\"}";
            s.file.write(kRun, text.data(), text.size());
        }
    }
    return s.file.is_open();
}

std::string meta(const llama_model * model, const std::string & key) {
    char value[256];
    return llama_model_meta_val_str(model, key.c_str(), value, sizeof value) < 0 ? std::string() : std::string(value);
}

void add_context(llama_context * handle, const llama_model * model, Context * context) {
    State & s = state();
    const std::string arch = meta(model, "general.architecture");
    context->handle = handle;
    context->number = s.contexts++;
    context->experts = atoi(meta(model, arch + ".expert_count").c_str());
    context->used = atoi(meta(model, arch + ".expert_used_count").c_str());
    const std::string text =
        "{\"context\":" + std::to_string(context->number) + ",\"architecture\":" + quoted(arch) +
        ",\"name\":" + quoted(meta(model, "general.name")) +
        ",\"layers\":" + std::to_string(llama_model_n_layer(model)) +
        ",\"experts\":" + std::to_string(context->experts) + ",\"used\":" + std::to_string(context->used) +
        ",\"tensor_bytes\":" + std::to_string(llama_model_size(model)) +
        ",\"parameters\":" + std::to_string(llama_model_n_params(model)) +
        ",\"ubatch\":" + std::to_string(llama_n_ubatch(handle)) + "}";
    s.file.write(kContext, text.data(), text.size());
}

std::vector<int32_t> whole_numbers(const ggml_tensor * t, int64_t count) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    if (count > 0) {
        ggml_backend_tensor_get(t, values.data(), 0, static_cast<size_t>(count) * sizeof(int32_t));
    }
    return values;
}

// A tensor that the scheduler copied to a device is named "DEVICE#name#n".
bool is_named(const ggml_tensor * t, const char * name) {
    const char * found = strstr(t->name, name);
    return found != nullptr && (found == t->name || found[-1] == '#');
}

void learn_inputs(Context * c, const ggml_tensor * t) {
    for (int i = 0; i < GGML_MAX_SRC && t->src[i] != nullptr; ++i) {
        const ggml_tensor * from = t->src[i];
        if (from->type != GGML_TYPE_I32) {
            continue;
        }
        if (is_named(from, "inp_tokens")) {
            c->tokens = from;
        } else if (is_named(from, "inp_pos")) {
            c->positions = from;
        } else if (is_named(from, "out_ids")) {
            c->outputs = from;
        }
    }
}

Bytes record_of(const Context & c) {
    // The largest number of a width stands for an id that cannot be.
    const bool wide = c.experts > 255;
    bool warm_up = c.forced_warm_up;
    for (const LayerRows & one : c.layers) {
        // All experts at once is how older versions warm up.
        warm_up = warm_up || (static_cast<int32_t>(one.used) == c.experts && c.used < c.experts);
    }
    Bytes out;
    out.u32(c.number);
    out.u32(c.call);
    out.u32(c.pass);
    out.u32(static_cast<uint32_t>(c.rows.size()));
    out.u32(static_cast<uint32_t>(c.layers.size()));
    out.u8(warm_up ? 1 : 0);
    out.u8(wide ? 2 : 1);
    out.u16(0);
    for (const Row & row : c.rows) out.i32(row.sequence);
    for (const Row & row : c.rows) out.i32(row.position);
    for (const Row & row : c.rows) out.u8(row.phase);
    for (const LayerRows & one : c.layers) {
        out.i32(one.layer);
        out.u32(one.used);
        out.u32(one.rows());
    }
    for (const LayerRows & one : c.layers) {
        if (one.rows() != c.rows.size()) {
            out.raw(one.row_of.data(), one.row_of.size() * sizeof(int32_t));
        }
    }
    for (const LayerRows & one : c.layers) {
        for (const int32_t id : one.ids) {
            // An id that cannot be (a fault of the model) must stay visible to the reader.
            const bool fits = id >= 0 && id < (wide ? 0xFFFF : 0xFF);
            wide ? out.u16(fits ? static_cast<uint16_t>(id) : 0xFFFF) : out.u8(fits ? static_cast<uint8_t>(id) : 0xFF);
        }
    }
    return out;
}

void release_held(Context * c, bool warm_up) {
    if (!warm_up && !c->held.empty()) {
        c->only_trials = false;
    }
    for (Bytes & record : c->held) {
        if (warm_up) {
            record.set_u8(kWarmUpByte, 1);
        }
        state().file.write(kPass, record.data(), record.size());
    }
    c->held.clear();
}

void end_pass(Context * c) {
    if (c->layers.empty()) {
        return;
    }
    Bytes record = record_of(*c);
    if (c->maybe_trial) {
        c->held.push_back(std::move(record));
    } else {
        state().file.write(kPass, record.data(), record.size());
    }
    __atomic_add_fetch(&state().passes, 1, __ATOMIC_RELAXED);
    ++c->pass;
    c->layers.clear();
    c->rows.clear();
}

void begin_pass(Context * c, int64_t rows_here) {
    // The first layer with experts sees every row, except in a model of which only the last layer has experts.
    std::vector<int32_t> tokens, positions;
    if (c->positions != nullptr) {
        const int64_t count = c->tokens != nullptr ? ggml_nelements(c->tokens) : rows_here;
        if (c->tokens != nullptr) {
            tokens = whole_numbers(c->tokens, count);
        }
        positions = whole_numbers(c->positions, count);
        c->rows = c->sequences.rows(tokens, positions);
    } else {
        c->rows.assign(static_cast<size_t>(rows_here), Row{});
    }
}

void take(Context * c, const ggml_tensor * t) {
    LayerRows one;
    one.layer = atoi(t->name + sizeof kTopK - 1);
    one.used = static_cast<uint32_t>(t->ne[0]);
    if (!c->layers.empty() && one.layer <= c->layers.back().layer) {
        end_pass(c);
    }
    if (c->layers.empty()) {
        begin_pass(c, t->ne[1]);
    }
    const auto rows = static_cast<size_t>(t->ne[1]);
    one.ids.resize(rows * one.used);
    // The tensor is a view of the sorted scores: its rows lie nb[1] bytes apart, far more than they are long.
    for (size_t r = 0; r < rows; ++r) {
        ggml_backend_tensor_get(t, one.ids.data() + r * one.used, r * t->nb[1], one.used * sizeof(int32_t));
    }
    if (rows != c->rows.size()) {
        // The last layer computes only the rows that are asked for.
        const bool known = c->outputs != nullptr && ggml_nelements(c->outputs) >= t->ne[1];
        one.row_of = known ? whole_numbers(c->outputs, t->ne[1]) : std::vector<int32_t>(rows, -1);
    }
    if (rows > 0) {
        c->layers.push_back(std::move(one));
    }
}

bool on_node(ggml_tensor * t, bool ask, void * data) {
    Context * c = static_cast<Context *>(data);
    const bool ours = strncmp(t->name, kTopK, sizeof kTopK - 1) == 0 && t->type == GGML_TYPE_I32;
    if (ask) {
        learn_inputs(c, t);
        c->others_want = c->others != nullptr && c->others(t, true, c->others_data);
        return ours || c->others_want;
    }
    if (ours) {
        take(c, t);
    }
    return c->others_want ? c->others(t, false, c->others_data) : true;
}

Context * find(llama_context * handle) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    const auto found = s.by_handle.find(handle);
    return found == s.by_handle.end() ? nullptr : found->second.get();
}

void begin_call(Context * c, const std::vector<Entry> & batch) {
    release_held(c, false);
    c->maybe_trial = c->only_trials && batch.size() <= kMostTrialTokens;
    c->tokens = c->positions = c->outputs = nullptr;
    c->pass = 0;
    c->sequences.begin(batch);
}

void end_call(Context * c) {
    end_pass(c);
    c->only_trials = c->maybe_trial;
    ++c->call;
}

void edit(const llama_batch_ext * batch, int32_t index, void (*change)(Entry &, int32_t), int32_t value) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    std::vector<Entry> & entries = s.batches[batch];
    if (index >= 0 && static_cast<size_t>(index) < entries.size()) {
        change(entries[static_cast<size_t>(index)], value);
    }
}

void append(const llama_batch_ext * batch, int32_t index, int32_t sequence, int32_t token) {
    if (index < 0 || !state().file.is_open()) {
        return;
    }
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    std::vector<Entry> & entries = s.batches[batch];
    entries.resize(static_cast<size_t>(index) + 1);
    entries.back().sequence = sequence;
    entries.back().token = token;
}

void forget(const llama_batch_ext * batch) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    s.batches.erase(batch);
}

__attribute__((destructor)) void at_exit() {
    State & s = state();
    if (!s.file.is_open()) {
        return;
    }
    for (auto & one : s.by_handle) {
        release_held(one.second.get(), false);
    }
    const std::string text = "{\"passes\":" + std::to_string(s.passes) + "}";
    s.file.write(kEnd, text.data(), text.size());
}

std::vector<Entry> entries_of(const llama_batch & batch) {
    std::vector<Entry> entries(static_cast<size_t>(batch.n_tokens));
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        Entry & entry = entries[static_cast<size_t>(i)];
        entry.token = batch.token != nullptr ? batch.token[i] : -1;
        entry.position = batch.pos != nullptr ? batch.pos[i] : -1;
        entry.sequence = batch.seq_id != nullptr ? batch.seq_id[i][0] : 0;
        entry.output = batch.logits != nullptr ? batch.logits[i] != 0 : i == batch.n_tokens - 1;
    }
    return entries;
}

}  // namespace

}  // namespace router_trace

// The functions that are interposed, under their public names. (Each file-local `real` is found once.)
extern "C" {

using namespace router_trace;

llama_context * llama_init_from_model(llama_model * model, llama_context_params params) {
    static const auto next = real<decltype(&llama_init_from_model)>("llama_init_from_model");
    State & s = state();
    std::unique_lock<std::mutex> guard(s.lock);
    const bool on = is_on();
    guard.unlock();
    if (!on) {
        return next(model, params);
    }
    std::unique_ptr<Context> context(new Context);
    context->others = params.cb_eval;
    context->others_data = params.cb_eval_user_data;
    params.cb_eval = on_node;
    params.cb_eval_user_data = context.get();
    llama_context * handle = next(model, params);
    if (handle != nullptr) {
        guard.lock();
        add_context(handle, model, context.get());
        s.by_handle[handle] = std::move(context);
    }
    return handle;
}

void llama_free(llama_context * handle) {
    static const auto next = real<decltype(&llama_free)>("llama_free");
    next(handle);
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    const auto found = s.by_handle.find(handle);
    if (found != s.by_handle.end()) {
        release_held(found->second.get(), false);
        s.by_handle.erase(found);
    }
}

int32_t llama_process(llama_context * handle, enum llama_process_type type, llama_batch_ext * batch) {
    static const auto next = real<decltype(&llama_process)>("llama_process");
    Context * c = find(handle);
    if (c == nullptr) {
        return next(handle, type, batch);
    }
    std::vector<Entry> entries;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        entries = state().batches[batch];
    }
    begin_call(c, entries);
    const int32_t result = next(handle, type, batch);
    end_call(c);
    return result;
}

int32_t llama_decode(llama_context * handle, llama_batch batch) {
    static const auto next = real<decltype(&llama_decode)>("llama_decode");
    Context * c = find(handle);
    if (c == nullptr) {
        return next(handle, batch);
    }
    begin_call(c, entries_of(batch));
    const int32_t result = next(handle, batch);
    end_call(c);
    return result;
}

void llama_memory_clear(llama_memory_t memory, bool data) {
    static const auto next = real<decltype(&llama_memory_clear)>("llama_memory_clear");
    State & s = state();
    {
        const std::lock_guard<std::mutex> guard(s.lock);
        for (auto & one : s.by_handle) {
            if (!one.second->held.empty() && llama_get_memory(one.first) == memory) {
                release_held(one.second.get(), true);
            }
        }
    }
    next(memory, data);
}

void llama_set_warmup(llama_context * handle, bool on) {
    static const auto next = real<void (*)(llama_context *, bool)>("llama_set_warmup");
    if (Context * c = find(handle)) {
        c->forced_warm_up = on;
    }
    next(handle, on);
}

int32_t llama_batch_ext_add(llama_batch_ext * batch, llama_seq_id sequence) {
    static const auto next = real<decltype(&llama_batch_ext_add)>("llama_batch_ext_add");
    const int32_t index = next(batch, sequence);
    append(batch, index, sequence, -1);
    return index;
}

int32_t llama_batch_ext_add_token(llama_batch_ext * batch, llama_seq_id sequence, llama_token id) {
    static const auto next = real<decltype(&llama_batch_ext_add_token)>("llama_batch_ext_add_token");
    const int32_t index = next(batch, sequence, id);
    append(batch, index, sequence, id);
    return index;
}

int32_t llama_batch_ext_add_embd(llama_batch_ext * batch, llama_seq_id sequence, llama_embd embd) {
    static const auto next = real<decltype(&llama_batch_ext_add_embd)>("llama_batch_ext_add_embd");
    const int32_t index = next(batch, sequence, embd);
    append(batch, index, sequence, -1);
    return index;
}

bool llama_batch_ext_set_pos(llama_batch_ext * batch, int32_t index, const llama_pos * pos) {
    static const auto next = real<decltype(&llama_batch_ext_set_pos)>("llama_batch_ext_set_pos");
    const bool done = next(batch, index, pos);
    if (done) {
        edit(batch, index, [](Entry & entry, int32_t value) { entry.position = value; }, pos[0]);
    }
    return done;
}

bool llama_batch_ext_set_output_logits(llama_batch_ext * batch, int32_t index, bool value) {
    static const auto next = real<decltype(&llama_batch_ext_set_output_logits)>("llama_batch_ext_set_output_logits");
    const bool done = next(batch, index, value);
    if (done) {
        edit(batch, index, [](Entry & entry, int32_t on) { entry.output = on != 0; }, value ? 1 : 0);
    }
    return done;
}

bool llama_batch_ext_set_output_embd(llama_batch_ext * batch, int32_t index, bool value) {
    static const auto next = real<decltype(&llama_batch_ext_set_output_embd)>("llama_batch_ext_set_output_embd");
    const bool done = next(batch, index, value);
    if (done) {
        edit(batch, index, [](Entry & entry, int32_t on) { entry.output = on != 0; }, value ? 1 : 0);
    }
    return done;
}

void llama_batch_ext_clear(llama_batch_ext * batch) {
    static const auto next = real<decltype(&llama_batch_ext_clear)>("llama_batch_ext_clear");
    next(batch);
    forget(batch);
}

void llama_batch_ext_free(llama_batch_ext * batch) {
    static const auto next = real<decltype(&llama_batch_ext_free)>("llama_batch_ext_free");
    next(batch);
    forget(batch);
}

}  // extern "C"
