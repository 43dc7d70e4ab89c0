// The trace file: records that are whole or not there. The format is in README.md; boardbench.moe.trace reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace router_trace {

enum RecordKind : uint32_t { kRun = 1, kContext = 2, kPass = 3, kEnd = 4 };

// Little-endian bytes of a record, built up front to back.
class Bytes {
public:
    void u8(uint8_t v) { data_.push_back(static_cast<char>(v)); }
    void u16(uint16_t v) { raw(&v, sizeof v); }
    void u32(uint32_t v) { raw(&v, sizeof v); }
    void i32(int32_t v) { raw(&v, sizeof v); }
    void raw(const void * from, size_t n) {
        const char * p = static_cast<const char *>(from);
        data_.insert(data_.end(), p, p + n);
    }
    void set_u8(size_t at, uint8_t v) { data_[at] = static_cast<char>(v); }
    const char * data() const { return data_.data(); }
    size_t size() const { return data_.size(); }

private:
    std::vector<char> data_;
};

class TraceFile {
public:
    // "%p" in the name becomes the process id. A file that is there is continued with a run of its own.
    bool open(const std::string & name);
    bool is_open() const { return fd_ >= 0; }
    // One write call a record, so that a killed process tears at most the last one. A full disk ends the trace, aloud.
    void write(RecordKind kind, const void * data, size_t size);

private:
    void fail(const char * what);

    std::mutex lock_;
    int fd_ = -1;
    std::string name_;
};

}  // namespace router_trace
