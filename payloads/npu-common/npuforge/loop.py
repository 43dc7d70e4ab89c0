"""The event loop: uvloop where it is to be had, else Python's own; which one it was is part of what is reported."""

import asyncio

try:
    import uvloop
except ImportError:
    uvloop = None

NAME = "asyncio" if uvloop is None else "uvloop"


def run(main):
    """Runs a coroutine to its end and returns what it returns."""
    if uvloop is not None:
        # Not uvloop.run: Python 3.8 to 3.11 need the policy anyway, for loops that libraries make.
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(main)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()
    return asyncio.run(main)
