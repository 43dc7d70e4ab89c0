"""The two ways to load a cluster.

Closed: so many clients, each sends its next request after the reply. It compares configurations; it cannot say what
users would see, since a slow answer also holds back the requests that would have come meanwhile.
Open: requests come when they come. Each is sent at its moment whatever is still under way, and its latency counts from
that moment, so a stall is seen by all who would have waited in it.
"""

import asyncio
import random
import time

from npuload.requests import Answer, Samples

POISSON, CONSTANT = "poisson", "constant"
OVERRUN = "CLIENT-OVERRUN"


def clock():
    """The monotonic clock in seconds."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


async def sleep_until(at_s):
    """Sleeps until the monotonic clock reads this."""
    left_s = at_s - clock()
    if left_s > 0:
        await asyncio.sleep(left_s)


class Numbers:
    """Request numbers of a run: each once, the warm-up's too."""

    def __init__(self):
        self._next = 0

    def take(self):
        """The next one."""
        self._next += 1
        return self._next - 1


async def warm_up(scheduler, requests, numbers, clients, each):
    """`each` requests of every client, discarded; returns how many were answered without error."""

    async def client(index):
        good = 0
        for _ in range(each):
            answer = await scheduler.infer(index, requests.make(numbers.take()))
            good += answer.code == "NPF-0000"
        return good

    return sum(await asyncio.gather(*(client(index) for index in range(clients))))


async def closed_loop(scheduler, requests, numbers, clients, begin_s, duration_s, count):
    """The samples of a closed loop; ends `duration_s` after `begin_s` (no new requests then) or after `count`."""
    samples = Samples()
    left = count

    async def client(index):
        nonlocal left
        await sleep_until(begin_s)
        while left is None or left > 0:
            if left is not None:
                left -= 1
            if duration_s is not None and clock() >= begin_s + duration_s:
                return
            number = numbers.take()
            sent_s = clock()
            answer = await scheduler.infer(index, requests.make(number))
            samples.add(number, index, sent_s, sent_s, clock(), answer)

    await asyncio.gather(*(client(index) for index in range(clients)))
    return samples


def arrivals(kind, rate_per_s, seed):
    """Seconds between arrivals, for ever: all equal, or exponential (a Poisson process), the same for a seed."""
    source = random.Random(f"arrivals {seed}")
    while True:
        yield source.expovariate(rate_per_s) if kind == POISSON else 1.0 / rate_per_s


async def open_loop(scheduler, requests, numbers, plan, begin_s, duration_s, count):
    """The samples of an open loop. `plan`: (kind, rate_per_s, seed, connections, most requests under way).

    A request that would be one too many under way is not sent: it is a sample with the code CLIENT-OVERRUN, never lost.
    """
    kind, rate_per_s, seed, connections, most = plan
    samples = Samples()
    running = set()

    async def send(number, intended_s):
        sent_s = clock()
        answer = await scheduler.infer(number % connections, requests.make(number))
        samples.add(number, number % connections, intended_s, sent_s, clock(), answer)

    intended_s, sent = begin_s, 0
    for gap_s in arrivals(kind, rate_per_s, seed):
        intended_s += gap_s
        over = duration_s is not None and intended_s >= begin_s + duration_s
        if over or (count is not None and sent >= count):
            break
        await sleep_until(intended_s)
        number, sent = numbers.take(), sent + 1
        if len(running) >= most:
            refused = Answer()
            refused.code, refused.message = OVERRUN, f"{most} requests were under way"
            samples.add(number, number % connections, intended_s, intended_s, clock(), refused)
            continue
        task = asyncio.ensure_future(send(number, intended_s))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return samples
