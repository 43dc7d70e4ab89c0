// One model's slots: a range of addresses cut into equal strides, backed by memory only as far as units need it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace expert_cache {

class SlotMemory {
public:
    SlotMemory() = default;
    ~SlotMemory();
    SlotMemory(const SlotMemory &) = delete;
    SlotMemory & operator=(const SlotMemory &) = delete;

    // `slots` address ranges of `stride` bytes each; costs no memory yet. False with `why`: no address space.
    // With huge pages the system may back all of it, also what lies between units, so that must be within the budget.
    bool reserve(uint64_t slots, uint64_t stride, bool huge_pages, std::string * why);

    uint64_t slots() const { return backed_.size(); }
    uint64_t backed_bytes() const { return backed_bytes_; }  // what the slots, used or free, hold of real memory
    bool has_free() const { return !free_.empty(); }
    bool has_idle_memory() const { return idle_slots_ != 0; }

    // A free slot (the one given back last) that may be filled up to `bytes`; memory beyond that is given back.
    int32_t take(uint64_t bytes);
    void give(int32_t slot);
    // Returns the memory of one free slot to the system.
    void release_idle();

    char * base(int32_t slot) const { return memory_ + static_cast<uint64_t>(slot) * stride_; }

private:
    void shrink(int32_t slot, uint64_t bytes);

    char * memory_ = nullptr;
    uint64_t stride_ = 0;
    uint64_t backed_bytes_ = 0;
    uint64_t idle_slots_ = 0;       // free slots with memory
    std::vector<uint64_t> backed_;  // by slot
    std::vector<int32_t> free_;
};

}  // namespace expert_cache
