#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // O_DIRECT
#endif
#include "source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "geometry.h"

namespace expert_cache {

int64_t read_fully(Source & source, int file, char * dst, uint64_t offset, uint64_t bytes, uint64_t needed) {
    constexpr int kMostVain = 8;
    uint64_t done = 0;
    for (int vain = 0; done < needed;) {
        // A short read may end inside a page, and O_DIRECT can only go on from the page's start.
        const uint64_t from = round_down(done);
        const int64_t got = source.read(file, dst + from, offset + from, bytes - from);
        if (got == -EINTR) {
            continue;
        }
        if (got < 0) {
            return got;
        }
        const uint64_t reached = from + static_cast<uint64_t>(got);
        if (got == 0 || (reached <= done && ++vain == kMostVain)) {
            return -EIO;
        }
        done = reached > done ? reached : done;
    }
    return static_cast<int64_t>(done);
}

DirectFiles::~DirectFiles() {
    for (int fd : fds_) {
        close(fd);
    }
}

namespace {

bool first_page_reads(int fd) {
    void * page = nullptr;
    if (posix_memalign(&page, kPage, kPage) != 0) {
        errno = ENOMEM;
        return false;
    }
    const ssize_t got = pread(fd, page, kPage, 0);
    free(page);
    return got > 0;
}

}  // namespace

int DirectFiles::add(int fd, std::string * why) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const int own = open(link, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (own < 0) {
        *why = std::string("the file system refuses O_DIRECT: ") + strerror(errno);
        return -1;
    }
    if (!first_page_reads(own)) {
        *why = std::string("a first O_DIRECT read failed: ") + strerror(errno);
        close(own);
        return -1;
    }
    fds_.push_back(own);
    return static_cast<int>(fds_.size()) - 1;
}

int64_t DirectFiles::read(int file, char * dst, uint64_t offset, uint64_t bytes) {
    const ssize_t got = pread(fds_[static_cast<size_t>(file)], dst, bytes, static_cast<off_t>(offset));
    return got < 0 ? -static_cast<int64_t>(errno) : static_cast<int64_t>(got);
}

}  // namespace expert_cache
