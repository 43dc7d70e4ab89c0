#include "trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace router_trace {

namespace {

constexpr char kMagic[8] = {'B', 'B', 'R', 'O', 'U', 'T', 'E', '1'};

// The CRC-32 of zlib and PNG.
uint32_t crc32(const char * data, size_t size) {
    static const std::array<uint32_t, 256> table = [] {
        std::array<uint32_t, 256> t{};
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; ++bit) {
                c = (c & 1u) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
            }
            t[i] = c;
        }
        return t;
    }();
    uint32_t c = 0xFFFFFFFFu;
    for (size_t i = 0; i < size; ++i) {
        c = table[(c ^ static_cast<uint8_t>(data[i])) & 0xFFu] ^ (c >> 8);
    }
    return c ^ 0xFFFFFFFFu;
}

bool write_all(int fd, const char * data, size_t size) {
    while (size > 0) {
        const ssize_t n = ::write(fd, data, size);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return false;
        }
        data += n;
        size -= static_cast<size_t>(n);
    }
    return true;
}

}  // namespace

bool TraceFile::open(const std::string & name) {
    name_ = name;
    const size_t at = name_.find("%p");
    if (at != std::string::npos) {
        name_.replace(at, 2, std::to_string(getpid()));
    }
    fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) {
        fail("cannot be opened");
        return false;
    }
    if (lseek(fd_, 0, SEEK_END) == 0 && !write_all(fd_, kMagic, sizeof kMagic)) {
        fail("cannot be written");
        return false;
    }
    return true;
}

void TraceFile::write(RecordKind kind, const void * data, size_t size) {
    Bytes record;
    record.u32(kind);
    record.u32(static_cast<uint32_t>(size));
    record.raw(data, size);
    record.u32(crc32(record.data(), record.size()));
    const std::lock_guard<std::mutex> guard(lock_);
    if (fd_ >= 0 && !write_all(fd_, record.data(), record.size())) {
        fail("cannot be written");
    }
}

void TraceFile::fail(const char * what) {
    fprintf(stderr, "router trace: %s %s: %s; the trace ends here, the model goes on\n", name_.c_str(), what, strerror(errno));
    if (fd_ >= 0) {
        close(fd_);
        fd_ = -1;
    }
}

}  // namespace router_trace
