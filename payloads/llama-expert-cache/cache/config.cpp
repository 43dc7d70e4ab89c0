#include "config.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace expert_cache {

namespace {

struct Range {
    const char * name;
    long low, high, step;
    const char * unit;
};

constexpr Range kBudget{"LLAMA_EXPERT_CACHE_MIB", 0, 1L << 30, 1, "MiB"};
constexpr Range kReaders{"LLAMA_EXPERT_CACHE_READERS", 1, 64, 1, "threads"};
constexpr Range kChunk{"LLAMA_EXPERT_CACHE_CHUNK_KIB", 4, 16384, 4, "KiB"};
constexpr Range kSmall{"LLAMA_EXPERT_CACHE_SMALL", 0, 1, 1, "(0 or 1)"};

bool read_long(Getenv get, const Range & range, long * value, std::string * fault) {
    const char * text = get(range.name);
    if (text == nullptr || *text == '\0') {
        return true;
    }
    char * end = nullptr;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || n < range.low || n > range.high || n % range.step != 0) {
        *fault = std::string(range.name) + "='" + text + "' is not a whole number of " + range.unit + " from " +
                 std::to_string(range.low) + " to " + std::to_string(range.high) +
                 (range.step > 1 ? " in steps of " + std::to_string(range.step) : "") + "; the expert cache is off";
        return false;
    }
    *value = n;
    return true;
}

std::string with_pid(std::string path) {
    const size_t at = path.find("%p");
    return at == std::string::npos ? path : path.replace(at, 2, std::to_string(getpid()));
}

}  // namespace

Config config_from(Getenv get, std::string * fault) {
    Config config;
    long mib = 0, readers = config.readers, chunk_kib = static_cast<long>(config.chunk_bytes / 1024), small = 0;
    if (!read_long(get, kBudget, &mib, fault) || !read_long(get, kReaders, &readers, fault) ||
        !read_long(get, kChunk, &chunk_kib, fault) || !read_long(get, kSmall, &small, fault)) {
        return config;
    }
    config.budget_bytes = static_cast<uint64_t>(mib) << 20;
    config.readers = static_cast<int>(readers);
    config.chunk_bytes = static_cast<uint64_t>(chunk_kib) * 1024;
    config.small_budget = small == 1;
    const char * stats = get("LLAMA_EXPERT_CACHE_STATS");
    config.stats_path = stats == nullptr ? "" : with_pid(stats);
    return config;
}

}  // namespace expert_cache
