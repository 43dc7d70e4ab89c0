#include "read_queue.h"

namespace expert_cache {

void ReadQueue::append(Load * load, Urgency urgency) {
    List & list = lists_[urgency];
    load->list = urgency;
    load->prev = list.last;
    load->next = nullptr;
    (list.last != nullptr ? list.last->next : list.first) = load;
    list.last = load;
}

void ReadQueue::unlink(Load * load) {
    List & list = lists_[load->list];
    (load->prev != nullptr ? load->prev->next : list.first) = load->next;
    (load->next != nullptr ? load->next->prev : list.last) = load->prev;
    load->prev = load->next = nullptr;
    load->list = -1;
}

void ReadQueue::push(const std::vector<Load *> & loads, Urgency urgency) {
    if (loads.empty()) {
        return;
    }
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (Load * load : loads) {
            append(load, urgency);
        }
    }
    filled_.notify_all();
}

void ReadQueue::hurry(const std::vector<Unit *> & units, Kind kind) {
    std::lock_guard<std::mutex> guard(lock_);
    for (Unit * unit : units) {
        Load & load = unit->loads[kind];
        if (load.list == kSoon) {
            unlink(&load);
            append(&load, kNow);
        }
    }
}

bool ReadQueue::pop(Chunk * chunk) {
    std::unique_lock<std::mutex> guard(lock_);
    filled_.wait(guard, [this] { return closed_ || lists_[kNow].first != nullptr || lists_[kSoon].first != nullptr; });
    Load * load = lists_[kNow].first != nullptr ? lists_[kNow].first : lists_[kSoon].first;
    if (load == nullptr) {
        return false;  // closed, and nothing left
    }
    *chunk = Chunk{load->unit, load->kind, load->next_chunk++};
    if (load->next_chunk == load->chunks) {
        unlink(load);
    }
    return true;
}

void ReadQueue::close() {
    {
        std::lock_guard<std::mutex> guard(lock_);
        closed_ = true;
    }
    filled_.notify_all();
}

}  // namespace expert_cache
