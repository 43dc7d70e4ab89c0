// LD_PRELOAD: a disk that can be ill, for a real llama-server.
// While the file named by FAIL_READS_WHILE exists, every O_DIRECT read fails. With REFUSE_O_DIRECT, no file opens so.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

typedef ssize_t (*pread_fn)(int, void *, size_t, off64_t);
typedef int (*open_fn)(const char *, int, ...);

static ssize_t read_or_fail(const char * name, int fd, void * buf, size_t n, off64_t offset) {
    const char * flag = getenv("FAIL_READS_WHILE");
    if (flag != NULL && (fcntl(fd, F_GETFL) & O_DIRECT) != 0 && access(flag, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return ((pread_fn) dlsym(RTLD_NEXT, name))(fd, buf, n, offset);
}

static int open_or_refuse(const char * name, const char * path, int flags, mode_t mode) {
    if ((flags & O_DIRECT) != 0 && getenv("REFUSE_O_DIRECT") != NULL) {
        errno = EINVAL;
        return -1;
    }
    return ((open_fn) dlsym(RTLD_NEXT, name))(path, flags, mode);
}

ssize_t pread(int fd, void * buf, size_t n, off_t offset) { return read_or_fail("pread", fd, buf, n, offset); }
ssize_t pread64(int fd, void * buf, size_t n, off64_t offset) { return read_or_fail("pread64", fd, buf, n, offset); }

int open(const char * path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_or_refuse("open", path, flags, mode);
}

int open64(const char * path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_or_refuse("open64", path, flags, mode);
}
