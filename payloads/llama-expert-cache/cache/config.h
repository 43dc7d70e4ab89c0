// What the user asked for, by environment. The cache is off unless LLAMA_EXPERT_CACHE_MIB is a number above 0.
#pragma once

#include <cstdint>
#include <string>

namespace expert_cache {

struct Config {
    uint64_t budget_bytes = 0;             // LLAMA_EXPERT_CACHE_MIB; 0: off
    int readers = 4;                       // LLAMA_EXPERT_CACHE_READERS, 1 to 64
    uint64_t chunk_bytes = 128 * 1024;     // LLAMA_EXPERT_CACHE_CHUNK_KIB, multiples of 4 KiB
    bool small_budget = false;             // LLAMA_EXPERT_CACHE_SMALL=1: serve although one token does not fit
    std::string stats_path;                // LLAMA_EXPERT_CACHE_STATS; "%p" in it becomes the process id
};

using Getenv = const char * (*)(const char *);

// `fault` gets one sentence when a variable holds nonsense; the cache is then off, since a guess would be worse.
Config config_from(Getenv get, std::string * fault);

}  // namespace expert_cache
