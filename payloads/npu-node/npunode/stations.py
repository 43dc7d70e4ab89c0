"""Queues of a model of a board: work that waits for one of so many servers, in the order in which it came.

Time is passed in and nothing here waits. What a piece of work ends at is known when it comes, so a late timer of the
host delays one answer and never the model.
"""

import heapq


class Station:
    """So many servers, first come, first served. Seconds throughout."""

    def __init__(self, servers):
        self._free_at = [0.0] * servers

    def serve(self, at_s, work_s):
        """When work that comes at `at_s` and takes `work_s` ends."""
        end = max(at_s, self._free_at[0]) + work_s
        heapq.heapreplace(self._free_at, end)
        return end

    @property
    def free_at(self):
        """When the first server is free."""
        return self._free_at[0]
