"""The three clocks of this machine at one moment."""

import time


def now():
    """Wall, monotonic and boot time in seconds, as every result of the bench has them."""
    return {
        "wall_unix_s": round(time.time(), 6),
        "monotonic_s": round(time.clock_gettime(time.CLOCK_MONOTONIC), 6),
        "boottime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 6),
    }
