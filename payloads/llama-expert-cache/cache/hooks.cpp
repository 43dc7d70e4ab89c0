// Between ggml's types and the cache. One cache for the whole process, made when the first model asks for it.
#include "hooks.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache.h"
#include "ggml-impl.h"
#include "ggml.h"
#include "report.h"
#include "tensor_table.h"

using namespace expert_cache;

namespace {

struct TensorMark {
    Layer * layer;
    Kind kind;
};
TensorTable<TensorMark> marks;

void log_line(Severity severity, const std::string & text) {
    switch (severity) {
        case Severity::kInfo: GGML_LOG_INFO("expert cache: %s\n", text.c_str()); break;
        case Severity::kWarning: GGML_LOG_WARN("expert cache: %s\n", text.c_str()); break;
        case Severity::kError: GGML_LOG_ERROR("expert cache: %s\n", text.c_str()); break;
    }
}

Cache * cache();

void write_stats() {
    std::string why;
    Cache * c = cache();
    if (!write_file(c->config().stats_path, c->json(), &why)) {
        log_line(Severity::kError, why);
    }
}

// Never destroyed: models may be freed, and threads may run, until the very end of the process.
Cache * make_cache() {
    std::string fault;
    const Config config = config_from([](const char * name) -> const char * { return getenv(name); }, &fault);
    if (!fault.empty()) {
        log_line(Severity::kError, fault);
    }
    if (config.budget_bytes == 0) {
        return nullptr;
    }
    return new Cache(config, log_line);
}

Cache * cache() {
    static Cache * const the_cache = make_cache();
    return the_cache;
}

void report_counters_once() {
    static const bool once = [] {
        if (cache()->config().stats_path.empty()) {
            return true;
        }
        atexit(write_stats);
        if (!on_signal(write_stats)) {
            log_line(Severity::kWarning, "SIGUSR1 is taken: counters are written at exit only");
        }
        return true;
    }();
    (void) once;
}

// Set while any model is served, so that a process without one pays a single load.
std::atomic<int> n_served{0};

}  // namespace

struct ggml_expert_cache_model {
    std::unique_ptr<Model> offered;  // until start()
    Model * served = nullptr;
    std::unique_ptr<DirectFiles> files;
    std::map<int, int> file_of_fd;
    std::vector<TensorSpec> specs;
    std::vector<ggml_tensor *> tensors;
    std::vector<std::unique_ptr<TensorMark>> marks;
    std::string why_not;
};

namespace {

void note_why(ggml_expert_cache_model * m, const std::string & why) {
    if (m->why_not.empty()) {
        m->why_not = why;
    }
}

std::string path_of(int fd, const std::string & otherwise) {
    char path[4096];
    const ssize_t n = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return n > 0 ? std::string(path, static_cast<size_t>(n)) : otherwise;
}

ggml_expert_cache_model * loader_open(const char * model_name, int experts_used) {
    if (cache() == nullptr) {
        return nullptr;
    }
    report_counters_once();
    auto * m = new ggml_expert_cache_model;
    m->offered.reset(new Model);
    m->offered->name = model_name;
    m->offered->experts_used = experts_used;
    m->files.reset(new DirectFiles);
    return m;
}

void loader_tensor(ggml_expert_cache_model * m, ggml_tensor * t, ggml_expert_cache_place place, int fd, size_t offset) {
    TensorSpec spec;
    if (!parse_expert_tensor(t->name, &spec.layer, &spec.kind)) {
        return;
    }
    if (m->specs.empty()) {
        m->offered->name = path_of(fd, m->offered->name);
    }
    if (place == GGML_EXPERT_CACHE_ELSEWHERE) {
        return;  // computed where it lies; the layers on the CPU can still be served
    }
    if (place != GGML_EXPERT_CACHE_MAPPED) {
        note_why(m, std::string(t->name) + (place == GGML_EXPERT_CACHE_REPACKED
                                                ? " is in a repacked buffer: add --no-repack"
                                                : " is loaded into memory: use --load-mode mmap"));
        return;
    }
    if (!ggml_is_contiguous(t) || t->ne[3] != 1) {
        note_why(m, std::string(t->name) + " does not lie in the file expert by expert");
        return;
    }
    if (m->file_of_fd.count(fd) == 0) {
        std::string why;
        m->file_of_fd[fd] = m->files->add(fd, &why);
        if (m->file_of_fd[fd] < 0) {
            note_why(m, why);
        }
    }
    spec.file = m->file_of_fd[fd];
    spec.offset = offset;
    spec.slice_bytes = t->nb[2];
    spec.experts = static_cast<int>(t->ne[2]);
    m->specs.push_back(spec);
    m->tensors.push_back(t);
}

void stop_serving(ggml_expert_cache_model * m) {
    for (const ggml_tensor * t : m->tensors) {
        marks.remove(t);
    }
    n_served.fetch_sub(1, std::memory_order_release);
    cache()->remove(m->served);
    m->served = nullptr;
}

bool loader_start(ggml_expert_cache_model * m) {
    if (!m->why_not.empty()) {
        cache()->refuse(m->offered->name, m->why_not);
        return false;
    }
    m->offered->source = std::move(m->files);
    m->served = cache()->add(std::move(m->offered), m->specs);
    if (m->served == nullptr) {
        return false;
    }
    bool all = true;
    for (size_t i = 0; i < m->tensors.size(); ++i) {
        m->marks.emplace_back(new TensorMark{m->served->layer(m->specs[i].layer), m->specs[i].kind});
        all = marks.insert(m->tensors[i], m->marks.back().get()) && all;
    }
    n_served.fetch_add(1, std::memory_order_release);
    if (!all) {
        cache()->refuse(m->served->name, "too many expert tensors in this process");
        stop_serving(m);
    }
    return all;
}

const TensorMark * mark_of(const ggml_tensor * t) {
    return n_served.load(std::memory_order_acquire) == 0 ? nullptr : marks.find(t);
}

bool loader_serves(const ggml_tensor * t) { return mark_of(t) != nullptr; }

void loader_close(ggml_expert_cache_model * m) {
    if (m->served != nullptr) {
        stop_serving(m);
    }
    delete m;
}

}  // namespace

const struct ggml_expert_cache_loader * ggml_expert_cache_loader(void) {
    static const struct ggml_expert_cache_loader table = {loader_open, loader_tensor, loader_start, loader_serves,
                                                          loader_close};
    return &table;
}

struct ggml_expert_cache_op * ggml_expert_cache_begin(struct ggml_tensor * dst, const int64_t * rows, int n_threads) {
    const TensorMark * mark = mark_of(dst->src[0]);
    if (mark == nullptr) {
        return nullptr;
    }
    Layer & layer = *mark->layer;
    if (dst->src[2]->ne[0] > layer.model->experts_used) {
        // Only a warm-up run asks for more experts than a token uses, and throws its result away. Reading the whole
        // model for it would push out everything else; zeros do as well.
        memset(dst->data, 0, ggml_nbytes(dst));
        return reinterpret_cast<ggml_expert_cache_op *>(cache()->begin_warmup(layer, n_threads));
    }
    return reinterpret_cast<ggml_expert_cache_op *>(cache()->begin(layer, mark->kind, rows, n_threads));
}

void ggml_expert_cache_cursor_init(struct expert_cache_cursor * cursor, int thread) {
    memset(cursor, 0, sizeof *cursor);
    cursor->current = -1;
    cursor->thread = thread;
}

int ggml_expert_cache_next(struct ggml_expert_cache_op * op, struct expert_cache_cursor * cursor,
                           const char ** weights) {
    return cache()->next(reinterpret_cast<Operation *>(op), cursor, weights);
}
