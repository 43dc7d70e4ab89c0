// The few calls that llama.cpp makes. C, so that ggml-cpu.c can make them too.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cursor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_tensor;
struct ggml_expert_cache_model;
struct ggml_expert_cache_op;

enum ggml_expert_cache_place {
    GGML_EXPERT_CACHE_MAPPED,    // in the CPU's plain buffer, from the mapped file: can be served
    GGML_EXPERT_CACHE_LOADED,    // in the CPU's plain buffer, read into memory
    GGML_EXPERT_CACHE_REPACKED,  // in a CPU buffer that keeps weights in a layout of its own
    GGML_EXPERT_CACHE_ELSEWHERE, // on a device
};

// For the model loader, which finds this table by name (the CPU backend may be a module loaded at run time).
struct ggml_expert_cache_loader {
    // Null: the cache is off.
    struct ggml_expert_cache_model * (*open)(const char * model_name, int experts_used);
    // Every tensor of the model may be shown; others than expert tensors are passed over.
    void (*tensor)(struct ggml_expert_cache_model *, struct ggml_tensor *, enum ggml_expert_cache_place, int fd,
                   size_t offset);
    // After the last tensor. False: the model is not served (why was logged), all stays as it was.
    bool (*start)(struct ggml_expert_cache_model *);
    bool (*serves)(const struct ggml_tensor *);
    void (*close)(struct ggml_expert_cache_model *);
};
#define GGML_EXPERT_CACHE_LOADER "ggml_expert_cache_loader"
const struct ggml_expert_cache_loader * ggml_expert_cache_loader(void);

// For GGML_OP_MUL_MAT_ID, by thread 0 before the barrier. Null: compute as ever.
struct ggml_expert_cache_op * ggml_expert_cache_begin(struct ggml_tensor * dst, const int64_t * rows, int n_threads);

// By each thread until it is negative: the next expert and its weights. GGML_EXPERT_CACHE_END: all done.
// GGML_EXPERT_CACHE_FAILED: weights could not be read; the graph must end with an error.
#define GGML_EXPERT_CACHE_END    (-1)
#define GGML_EXPERT_CACHE_FAILED (-2)
void ggml_expert_cache_cursor_init(struct expert_cache_cursor *, int thread);
int  ggml_expert_cache_next(struct ggml_expert_cache_op *, struct expert_cache_cursor *, const char ** weights);

#ifdef __cplusplus
}
#endif
