// Which sequence, position and phase the rows of a pass belong to, learned from the batch calls of the public API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace router_trace {

enum Phase : uint8_t { kUnknownPhase = 0, kPrefill = 1, kDecode = 2 };

struct Entry {
    int32_t token = -1;  // -1: an embedding
    int32_t position = -1;
    int32_t sequence = 0;
    bool output = false;
};

struct Row {
    int32_t sequence = -1;  // -1: cannot be told
    int32_t position = -1;
    Phase phase = kUnknownPhase;
};

// The state of one context's sequences, and the batch that is being processed.
class Sequences {
public:
    // A call begins. A sequence's tokens are decode if each asks for an output and they follow right on a token that did
    // (several: a draft); everything else is prefill.
    void begin(const std::vector<Entry> & batch);

    // The rows of one pass (a part of the batch), from its token ids (empty: embeddings) and positions.
    std::vector<Row> rows(const std::vector<int32_t> & tokens, const std::vector<int32_t> & positions);

private:
    struct Last {
        int32_t position = -1;
        bool output = false;
    };

    Row row_of(size_t entry) const;

    std::vector<Entry> batch_;
    std::vector<Phase> phases_;
    size_t next_ = 0;  // where the next pass begins if the batch is cut in order
    std::map<int32_t, Last> last_;
    std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> by_key_;  // (token, position) -> entries
};

}  // namespace router_trace
