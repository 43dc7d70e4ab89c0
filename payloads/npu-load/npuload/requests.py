"""One request and what came of it, as columns: one append a value, no object a request stays."""

import array

from npuforge import npuforge_pb2 as pb
from npuforge import wire

# In the order of a request's way. What a peer leaves at 0 or out is not measured, unless it is one of WHOLE.
STAGES = (
    "scheduler_queue", "scheduler_route", "network_to_node", "node_queue", "decode", "preprocess", "npu_input",
    "inference", "postprocess", "network_to_client", "end_to_end",
)  # fmt: skip
LEGS = ("leg_to_node", "leg_from_node")
MISSING_US = -1
OK = "NPF-0000"


class Answer:
    """The small fields of an `InferResponse`."""

    __slots__ = ("attempts", "code", "message", "node", "request_id", "result", "timing")

    def __init__(self):
        self.request_id = self.node = self.message = ""
        self.code = OK
        self.attempts = 0
        self.timing = None
        self.result = (0, 0)


def read_answer(data):
    """The answer in these bytes, its result left where it is. WireError when they are none."""
    answer = Answer()
    for number, kind, value, _, _ in wire.fields(data):
        if kind == wire.BYTES:
            if number == 3:
                answer.result = value
                continue
            part = bytes(memoryview(data)[value[0] : value[1]])
            if number == 1:
                answer.request_id = part.decode("utf-8", "replace")
            elif number == 2:
                answer.node = part.decode("utf-8", "replace")
            elif number == 5:
                answer.timing = pb.Timing.FromString(part)
            elif number == 6:
                answer.code = part.decode("utf-8", "replace")
            elif number == 7:
                answer.message = part.decode("utf-8", "replace")
        elif kind == wire.VARINT and number == 8:
            answer.attempts = value
    return answer


class Words:
    """Words that come again and again, each as a small number."""

    def __init__(self):
        self.known = {}

    def number(self, word):
        """The word's number; a new one for a new word."""
        return self.known.setdefault(word, len(self.known))

    def list(self):
        """The words in the order of their numbers."""
        return list(self.known)


class Samples:
    """All requests of a load, in the order of their ends. Times in seconds of the monotonic clock."""

    def __init__(self):
        self.intended_s = array.array("d")
        self.sent_s = array.array("d")
        self.ended_s = array.array("d")
        self.number = array.array("q")
        self.client = array.array("i")
        self.attempts = array.array("i")
        self.code = array.array("i")
        self.node = array.array("i")
        self.stages = {name: array.array("i") for name in (*STAGES, *LEGS)}
        self.codes, self.nodes = Words(), Words()
        self.codes.number(OK)
        self.first_messages = {}

    def __len__(self):
        return len(self.ended_s)

    def add(self, number, client, intended_s, sent_s, ended_s, answer):
        """Notes one request; `answer` may hold any code."""
        self.intended_s.append(intended_s)
        self.sent_s.append(sent_s)
        self.ended_s.append(ended_s)
        self.number.append(number)
        self.client.append(client)
        self.attempts.append(min(answer.attempts, 1 << 30))
        self.code.append(self.codes.number(answer.code))
        self.node.append(self.nodes.number(answer.node))
        if answer.code != OK:
            self.first_messages.setdefault(answer.code, answer.message)
        timing = answer.timing
        for name in STAGES:
            value = MISSING_US if timing is None else getattr(timing, f"{name}_us")
            self.stages[name].append(min(value, (1 << 31) - 1))
        for name in LEGS:
            there = timing is not None and timing.HasField(f"{name}_us")
            value = getattr(timing, f"{name}_us") if there else MISSING_US
            # A leg that reads below 0 is within its error; it is kept, but never as the mark of a missing one.
            self.stages[name].append(max(min(value, (1 << 31) - 1), 0) if there else MISSING_US)

    def good(self):
        """Places of the requests that succeeded."""
        return [place for place, code in enumerate(self.code) if code == 0]
