// Where bytes come from. Tests put their own source here: slow, short, failing, reordered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace expert_cache {

class Source {
public:
    virtual ~Source() = default;

    // Up to `bytes` bytes of file `file` from `offset` into `dst`. Returns the number delivered (0: end of file) or
    // -errno. Called from several threads at once. All three of dst, offset and bytes are multiples of 4 KiB.
    virtual int64_t read(int file, char * dst, uint64_t offset, uint64_t bytes) = 0;
};

// Reads until `needed` of the `bytes` are there: an interrupted or short read goes on, the end of a file may cut off the
// rest. Returns the bytes delivered (>= needed) or -errno (-EIO: the file ends too early).
int64_t read_fully(Source & source, int file, char * dst, uint64_t offset, uint64_t bytes, uint64_t needed);

// Model files opened a second time with O_DIRECT, so that no read goes through the page cache.
class DirectFiles : public Source {
public:
    DirectFiles() = default;
    ~DirectFiles() override;
    DirectFiles(const DirectFiles &) = delete;
    DirectFiles & operator=(const DirectFiles &) = delete;

    // Takes over the file behind `fd` (which stays the caller's). Returns its number, or -1 with `why`: what the file
    // system said to O_DIRECT or to a first read.
    int add(int fd, std::string * why);

    int64_t read(int file, char * dst, uint64_t offset, uint64_t bytes) override;

private:
    std::vector<int> fds_;
};

}  // namespace expert_cache
