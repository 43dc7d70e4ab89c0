"""Keeps freed memory for the next message.

glibc gives buffers of more than 128 KiB back to the kernel at once. With messages of 1.2 MB every copy then costs some
300 page faults, which is several times the copy itself: profiles of an agent showed most of its time there.
"""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The greatest that glibc takes.
_MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024
_TRIM_THRESHOLD_BYTES = 512 * 1024 * 1024


try:
    _make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    _make.restype, _make.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)
except AttributeError:  # not CPython
    _make = None


def buffer(size):
    """A bytearray whose contents are not set: whoever asks for it writes every byte before it reads one."""
    return bytearray(size) if _make is None else _make(None, size)


def keep_freed_memory():
    """Sets both limits of this process; False where the C library does not know them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES))
