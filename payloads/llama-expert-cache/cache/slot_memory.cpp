#include "slot_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace expert_cache {

SlotMemory::~SlotMemory() {
    if (memory_ != nullptr) {
        munmap(memory_, stride_ * slots());
    }
}

bool SlotMemory::reserve(uint64_t slots, uint64_t stride, bool huge_pages, std::string * why) {
    void * memory = mmap(nullptr, slots * stride, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        *why = std::string("no address space for the slots: ") + strerror(errno);
        return false;
    }
    // Huge pages make transfers into a slot and walks over it cheaper; without them all works the same.
    (void) madvise(memory, slots * stride, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memory_ = static_cast<char *>(memory);
    stride_ = stride;
    backed_.assign(slots, 0);
    free_.reserve(slots);
    for (uint64_t i = slots; i-- > 0;) {
        free_.push_back(static_cast<int32_t>(i));
    }
    return true;
}

void SlotMemory::shrink(int32_t slot, uint64_t bytes) {
    uint64_t & backed = backed_[static_cast<size_t>(slot)];
    if (backed > bytes) {
        madvise(base(slot) + bytes, backed - bytes, MADV_DONTNEED);
        backed_bytes_ -= backed - bytes;
        backed = bytes;
    }
}

int32_t SlotMemory::take(uint64_t bytes) {
    const int32_t slot = free_.back();
    free_.pop_back();
    uint64_t & backed = backed_[static_cast<size_t>(slot)];
    idle_slots_ -= backed > 0 ? 1 : 0;
    shrink(slot, bytes);
    backed_bytes_ += bytes - backed;
    backed = bytes;
    return slot;
}

void SlotMemory::give(int32_t slot) {
    free_.push_back(slot);
    ++idle_slots_;
}

void SlotMemory::release_idle() {
    // Slots with memory were given back last, so the search is short: it ends at the first from the top.
    for (size_t i = free_.size(); i-- > 0;) {
        if (backed_[static_cast<size_t>(free_[i])] > 0) {
            shrink(free_[i], 0);
            --idle_slots_;
            return;
        }
    }
}

}  // namespace expert_cache
