// Sleep on a 32-bit atomic until somebody changes it (C++17 has no atomic wait).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace expert_cache {

static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t), "the kernel needs a plain 32-bit word");

// Returns when woken, at once if the word no longer holds `seen`, or for no reason: test the word again.
inline void futex_wait(std::atomic<int32_t> & word, int32_t seen) {
    syscall(SYS_futex, reinterpret_cast<int32_t *>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void futex_wake_all(std::atomic<int32_t> & word) {
    syscall(SYS_futex, reinterpret_cast<int32_t *>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// For waits that are over within a microsecond.
inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

}  // namespace expert_cache
