"""The agent of a node part, and what is done to it on purpose: killed and started again, or cut off for a while."""

import signal
import threading
import time

from npurun import children

KILL, CUT = "kill", "cut"


class Agent:
    """A running agent. `note(event, **fields)` is told of every fault, when it happens."""

    def __init__(self, config, log, note):
        self._config, self.log, self._note = config, log, note
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = None
        self.fault_under_way = False
        self.child = children.start("npu-node", ["--config", config], log)

    def dead(self):
        """Why the agent is gone though nobody killed it, or None."""
        with self._lock:
            if self.fault_under_way or self.child.poll() is None:
                return None
            return f"the agent ended by itself, code {self.child.returncode}: {children.last_line(self.log)}"

    def fault(self, kind, at_s, for_s):
        """In `at_s` seconds from now the agent is killed (and started again `for_s` later), or cut off for so long."""
        self._thread = threading.Thread(target=self._do, args=(kind, at_s, for_s), name="fault", daemon=True)
        self._thread.start()

    def _do(self, kind, at_s, for_s):
        if self._over.wait(at_s):
            return
        with self._lock:
            self.fault_under_way = True
            self.child.send_signal(signal.SIGKILL if kind == KILL else signal.SIGSTOP)
        self._note("fault", what=kind, monotonic_s=time.clock_gettime(time.CLOCK_MONOTONIC))
        self._over.wait(for_s)
        with self._lock:
            if kind == KILL:
                self.child.wait()
                if not self._over.is_set():
                    self.child = children.start("npu-node", ["--config", self._config], self.log)
            else:
                self.child.send_signal(signal.SIGCONT)
        self._note("fault", what=f"{kind} over", monotonic_s=time.clock_gettime(time.CLOCK_MONOTONIC))

    def answers(self):
        """It told its count: whatever was done to it is over."""
        with self._lock:
            thread = self._thread
            if thread is not None and not thread.is_alive():
                self.fault_under_way = False

    def end(self):
        """Ends it; the exit code."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        return children.end(self.child)
