"""Every gate by name: when it looks, what it sees, the word for its failure, and what to do. docs/gates.md shows it."""

from __future__ import annotations

from dataclasses import dataclass

BEFORE, DURING, AFTER, CAMPAIGN = "before", "during", "after", "campaign"


@dataclass(frozen=True)
class Gate:
    """A condition of a run. `code`: the word that its failure has among a run's invalid reasons.

    `fatal`: it counts when a matrix does not name its gates.
    """

    name: str
    when: str
    code: str
    sees: str
    advice: str
    fatal: bool = True


GATES = (
    Gate("identity", BEFORE, "wrong-board", "hostname, machine id and serial number against the inventory",
         "its address may belong to another board now: compare with the inventory"),
    Gate("host-key", BEFORE, "host-key-shared", "whether its pinned host key is another board's too",
         "make new host keys on the cloned board, then ./inv boards.trust", fatal=False),
    Gate("alike-kernel", BEFORE, "boards-differ", "kernel, over the boards of a kind",
         "bring the boards to one kernel", fatal=False),
    Gate("alike-firmware", BEFORE, "boards-differ", "image version and boot loader, over the boards of a kind",
         "flash the boards with one image", fatal=False),
    Gate("alike-runtime", BEFORE, "boards-differ", "Python, runtime library and driver, over the boards of a kind",
         "install one runtime on all boards", fatal=False),
    Gate("alike-payload", BEFORE, "boards-differ", "hashes of the installed payloads, over the boards of a kind",
         "run ./inv provision, with --tags npu where boards have the cluster's payloads"),
    Gate("alike-governor", BEFORE, "boards-differ", "CPU governors, over the boards of a kind", "run ./inv provision"),
    Gate("alike-link", BEFORE, "boards-differ", "the fastest link that is up, over the boards of a kind",
         "look at cables and switch ports", fatal=False),
    Gate("clock-sync", BEFORE, "clock-unsynced", "offset of its wall clock by round trips; older than boardbench",
         "start time synchronisation on the board"),
    Gate("disk", BEFORE, "disk-full", "free space for what the runs will leave; at the end the least that was free",
         "make room on the board"),
    Gate("writable", BEFORE, "not-writable", "a probe that is written, synced and dropped",
         "look at the board's log: a worn card becomes read-only"),
    Gate("volts", BEFORE, "input-volts-low", "the input voltage against the least that is declared",
         "use a better supply or a shorter cable"),
    Gate("link", BEFORE, "link-not-as-declared", "the declared link is up at its declared speed",
         "look at cable and switch port"),
    Gate("throttled", BEFORE, "throttled-before", "a clock cap below the hardware's highest that is not ours",
         "let the board cool; look for a cap that somebody left"),
    Gate("idle", BEFORE, "cool-gate-not-met", "the start temperature against the board's own idle temperature",
         "wait longer (cool.timeout_s), or look for what warms the board"),
    Gate("strays", BEFORE, "strays-present", "programs of a harness that still run", "run ./inv teardown, or end them"),
    Gate("quiet", BEFORE, "foreign-load", "CPU use in all and by process, registered loads, load average",
         "end what else runs on the board"),
    Gate("leftovers", BEFORE, "leftovers-not-restored", "what a dead campaign left is put back", "run ./inv teardown"),
    Gate("settings", BEFORE, "setting-not-applied", "each setting read back where it acts, also after the load",
         "look who else writes it (a fan or clock service)"),
    Gate("cool", BEFORE, "cool-gate-not-met", "the wait for the start temperature, with its time-out",
         "wait longer (cool.timeout_s), or cool the board"),
    Gate("cache", BEFORE, "cache-warm", "the page cache was dropped: residency of the named files, meminfo",
         "see which process holds the file; a container may not drop caches"),
    Gate("cooling", BEFORE, "cooling-not-as-planned", "the fan is as the phase wants it, also after the load",
         "look at the fan"),
    Gate("logger", DURING, "logger-short", "the log covers the load at both ends without a gap over two periods",
         "look at logs/logger.log of the run"),
    Gate("load-runs", DURING, "load-not-running", "CPU time of the workload, or its registered load on a virtual board",
         "look at logs/workload.log of the run"),
    Gate("limits", DURING, "limit-not-in-force", "the memory limit that was asked for",
         "the board's service manager must support memory limits", fatal=False),
    Gate("guard", DURING, "overheated", "the board's own guard: the hottest that it saw, and whether it ended the load",
         "see what cools the board; a run that needs this heat needs another 'guard'"),
    Gate("boot-id", AFTER, "rebooted", "boot ids before and after", "look at the supply"),
    Gate("load", AFTER, "workload-failed", "how the workload ended", "look at logs/workload.log of the run"),
    Gate("clock", AFTER, "clock-jump", "wall, boot and monotonic time in the log; the clock's offset before and after",
         "let the clock settle before a campaign"),
    Gate("instruments", AFTER, "instruments-disagree", "the temperature at the load's end against the log's rows",
         "one of the two reads another sensor, or is late"),
    Gate("counts", AFTER, "counts-do-not-add-up", "intervals join, their operations add up to the workload's own total",
         "the raw file was cut, or the workload counts wrongly"),
    Gate("littles-law", AFTER, "littles-law-broken", "concurrency = rate x latency in a closed loop",
         "one of the three was measured over another window"),
    Gate("answers", AFTER, "nodes-unanswered", "which nodes gave answers, against those that were asked",
         "look why a node that is registered does not work"),
    Gate("golden", AFTER, "outputs-differ", "what each node made of one image, twice, before the load",
         "the backend of the node that is named computes something else: no rate of it means anything"),
    Gate("arm-effect", CAMPAIGN, "arm-did-not-take-effect",
         "equal counters in arms that differ; an impossible control; what a load shows of its own arm",
         "see whether the arm's setting reached the running workload"),
    Gate("texts", CAMPAIGN, "text-differs", "answers of a run against those of the baseline arm, request by request",
         "the arm computes something else: it is no faster way to the same answer"),
    Gate("perplexity", CAMPAIGN, "perplexity-differs", "perplexity of a run against that of the baseline arm",
         "the arm computes something else: it is no faster way to the same answer"),
    Gate("load-curve", CAMPAIGN, "overload-quoted", "each arm's load against the operating point of its load curve",
         "judge by the arm at the operating point"),
)  # fmt: skip
"""In the order in which a person reads them."""

BY_NAME = {gate.name: gate for gate in GATES}
CODE_OF_GATE = {gate.name: gate.code for gate in GATES}
ALWAYS_ASKED = frozenset(
    {"identity", "clock-sync", "disk", "writable", "volts", "link", "throttled", "idle", "strays", "quiet"}
    | {"load", "load-runs"}
)
"""Every run has evidence of these. A gate that was not even asked has not been passed."""
ALWAYS_COUNTS = frozenset({"guard", "golden", "arm-effect"})
"""Whatever a matrix names: a load that the board itself had to end is no measurement, nor one of another arm, nor one
of wrong answers."""
DEFAULT_GATES = tuple(gate.name for gate in GATES if gate.fatal and gate.when != CAMPAIGN and gate.name != "cache")
"""What counts when a matrix names no gates. Not `cache`: only some workloads start cold."""
