// Where one compute thread stands in one operation. Plain C: it lives on the thread's stack, in C code.
#pragma once

#include <stdint.h>

#define EXPERT_CACHE_MAX_EXPERTS 1024

struct expert_cache_cursor {
    int32_t current;  // entry being computed; -1: none
    int32_t index;    // next entry to look at
    int32_t stage;    // 0: those that are there, 1: those to wait for
    int32_t thread;   // this thread's number
    uint64_t visited[EXPERT_CACHE_MAX_EXPERTS / 64];
};
