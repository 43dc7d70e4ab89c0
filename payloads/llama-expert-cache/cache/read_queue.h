// Which chunk is read next. Two lists: slices that an operation runs or waits for now, then those it will want soon.
// Inside a list first come, first served; several readers share one slice. Every step is O(1).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "unit.h"

namespace expert_cache {

struct Chunk {
    Unit * unit = nullptr;
    Kind kind = kGate;
    int32_t index = 0;
};

class ReadQueue {
public:
    enum Urgency : int8_t { kNow = 0, kSoon = 1 };

    // One lock round for many slices. A slice must not be queued twice.
    void push(const std::vector<Load *> & loads, Urgency urgency);

    // Slices of `units` and `kind` that wait among the later ones move to the end of the urgent ones.
    void hurry(const std::vector<Unit *> & units, Kind kind);

    // Blocks; false when closed.
    bool pop(Chunk * chunk);
    void close();

private:
    struct List {
        Load * first = nullptr;
        Load * last = nullptr;
    };
    void append(Load * load, Urgency urgency);
    void unlink(Load * load);

    std::mutex lock_;
    std::condition_variable filled_;
    List lists_[2];
    bool closed_ = false;
};

}  // namespace expert_cache
