#include "batches.h"

namespace router_trace {

namespace {

// A longer "draft" is a prompt of which every token was asked for.
constexpr size_t kLongestDraft = 64;

}  // namespace

void Sequences::begin(const std::vector<Entry> & batch) {
    batch_ = batch;
    next_ = 0;
    by_key_.clear();
    phases_.assign(batch.size(), kPrefill);
    std::map<int32_t, std::vector<size_t>> by_sequence;
    for (size_t i = 0; i < batch.size(); ++i) {
        by_key_[{batch[i].token, batch[i].position}].push_back(i);
        by_sequence[batch[i].sequence].push_back(i);
    }
    for (const auto & one : by_sequence) {
        const Last & last = last_[one.first];
        bool decode = last.output && one.second.size() <= kLongestDraft &&
                      batch[one.second.front()].position == last.position + 1;
        for (const size_t i : one.second) {
            decode = decode && batch[i].output;
        }
        for (const size_t i : one.second) {
            phases_[i] = decode ? kDecode : kPrefill;
        }
        const Entry & end = batch[one.second.back()];
        last_[one.first] = Last{end.position, end.output};
    }
}

Row Sequences::row_of(size_t entry) const {
    return Row{batch_[entry].sequence, batch_[entry].position, phases_[entry]};
}

std::vector<Row> Sequences::rows(const std::vector<int32_t> & tokens, const std::vector<int32_t> & positions) {
    const size_t count = positions.size();
    const auto token = [&](size_t i) { return tokens.empty() ? -1 : tokens[i]; };
    bool in_order = next_ + count <= batch_.size();
    for (size_t i = 0; in_order && i < count; ++i) {
        const Entry & entry = batch_[next_ + i];
        in_order = entry.token == token(i) && entry.position == positions[i];
    }
    std::vector<Row> rows(count);
    for (size_t i = 0; i < count; ++i) {
        if (in_order) {
            rows[i] = row_of(next_ + i);
            continue;
        }
        // Cut by sequence: a token and its position name the entry, unless two sequences share both.
        const auto found = by_key_.find({token(i), positions[i]});
        rows[i].position = positions[i];
        if (found != by_key_.end() && found->second.size() == 1) {
            rows[i] = row_of(found->second.front());
        } else if (found != by_key_.end()) {
            rows[i].phase = phases_[found->second.front()];
        }
    }
    next_ += in_order ? count : 0;
    return rows;
}

}  // namespace router_trace
