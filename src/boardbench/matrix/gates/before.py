"""The gates before a run, each a pure function of what `look` read and of the board's limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boardbench.inventory import Identity
from boardbench.matrix.gates.evidence import Evidence, failed, number, passed
from boardbench.matrix.gates.limits import MAX_FOREIGN_CORE_SHARE, Limits

Look = Mapping[str, Any]
"""LOOK of the wire."""
CLOCK_NOISE_KHZ = 1.0


def identity(look: Look, wanted: Identity) -> Evidence:
    """The machine that answers is the one that the inventory means."""
    found = look["board"]
    claims = {"hostname": wanted.hostname, "machine_id": wanted.machine_id, "serial": wanted.serial}
    saw = {"found": dict(found), "wanted": {key: value for key, value in claims.items() if value is not None}}
    wrong = [f"{key} is {found.get(key)!r}, the inventory says {want!r}" for key, want in saw["wanted"].items()
             if found.get(key) != want]  # fmt: skip
    if wrong:
        return failed("identity", saw, "; ".join(wrong))
    return passed("identity", saw, "" if saw["wanted"] else "the inventory claims no identity for this board")


def host_key(board: str, fingerprints: tuple[str, ...], sharing: tuple[str, ...]) -> Evidence:
    """Its pinned key is its own. `sharing`: the boards that have this key too."""
    saw = {"pinned": list(fingerprints), "shared_with": list(sharing)}
    if sharing:
        why = f"{board} has the host key of {', '.join(sharing)}: the key does not tell them apart, the identity must"
        return failed("host-key", saw, why)
    return passed("host-key", saw, "" if fingerprints else "no key is pinned")


def clock_sync(look: Look, limits: Limits, built_unix_s: float) -> Evidence:
    """The wall clock is not absurd: newer than what runs on it, and near to the controller's."""
    clock = look["clock"]
    offset_s, error_s = number(clock["offset_s"]), number(clock["error_s"])
    saw = {key: clock[key] for key in ("offset_s", "error_s", "round_trips_s")}
    saw |= {"wall_unix_s": clock["stamp"]["wall_unix_s"], "built_unix_s": built_unix_s}
    saw |= {"max_clock_offset_s": limits.max_clock_offset_s}
    if clock["stamp"]["wall_unix_s"] < built_unix_s:
        return failed("clock-sync", saw, "its clock is older than this boardbench: it was never synchronised")
    if offset_s is None or error_s is None:
        return failed("clock-sync", saw, "the offset of its clock was not measured")
    if abs(offset_s) - error_s > limits.max_clock_offset_s:
        why = f"its clock is {offset_s:+.3f} s off, {limits.max_clock_offset_s:g} s are allowed"
        return failed("clock-sync", saw, why)
    return passed("clock-sync", saw)


def disk(look: Look, limits: Limits) -> Evidence:
    """There is room for what the runs will leave."""
    found = look["disk"]
    free = number(found["free_bytes"])
    saw = {"path": found["path"], "free_bytes": found["free_bytes"], "wanted_bytes": limits.min_free_bytes}
    if free is None:
        return failed("disk", saw, f"the free space of {found['path']} is not known")
    if free < limits.min_free_bytes:
        why = f"{free / 1e6:,.0f} MB free at {found['path']}, {limits.min_free_bytes / 1e6:,.0f} MB are needed"
        return failed("disk", saw, why)
    return passed("disk", saw)


def writable(look: Look) -> Evidence:
    """The file system takes data and gives it back."""
    found = look["disk"]
    probe = found["probe"]
    saw = {"path": found["path"], "read_only": found["read_only"], "probe": probe}
    if found["read_only"] is True:
        return failed("writable", saw, f"the file system of {found['path']} is mounted read-only")
    if probe is None:
        return passed("writable", saw, "not probed")
    return passed("writable", saw) if probe["ok"] else failed("writable", saw, str(probe["why"]))


def volts(look: Look, limits: Limits) -> Evidence:
    """The supply holds its voltage."""
    reading = look["input_volts"]
    saw = {"input_volts": reading, "min_input_volts": limits.min_input_volts}
    value = number(reading)
    if value is None:
        return passed("volts", saw, f"the input voltage is not known: {reading.get('missing')}")
    if value < limits.min_input_volts:
        return failed("volts", saw, f"{value:.2f} V at the input, at least {limits.min_input_volts:g} V are wanted")
    return passed("volts", saw)


def fastest_link(look: Look) -> tuple[str | None, float | None]:
    """Name and speed (Mbit/s) of the fastest link that is up."""
    best: tuple[str | None, float | None] = (None, None)
    for link in look["links"]:
        speed = number(link["speed_mbit_per_s"])
        if link["state"] == "up" and speed is not None and (best[1] is None or speed > best[1]):
            best = (str(link["name"]), speed)
    return best


def link(look: Look, limits: Limits) -> Evidence:
    """The declared link is up at the declared speed: a bad cable negotiates less and says nothing."""
    saw: dict[str, Any] = {"links": list(look["links"])}
    saw["declared"] = {"link": limits.link, "mbit_per_s": limits.link_mbit_per_s}
    if limits.link is None and limits.link_mbit_per_s is None:
        return passed("link", saw, "nothing is declared (inventory variables link, link_mbit_per_s)")
    links = [entry for entry in look["links"] if limits.link in (None, entry["name"])]
    if limits.link is None:
        links = [entry for entry in links if entry["state"] == "up"]
    if not links:
        return failed("link", saw, f"there is no link {limits.link or 'that is up'}")
    if limits.link is not None and links[0]["state"] != "up":
        return failed("link", saw, f"{limits.link} is {links[0]['state']}")
    if limits.link_mbit_per_s is None:
        return passed("link", saw)
    speeds = [speed for entry in links if (speed := number(entry["speed_mbit_per_s"])) is not None]
    if not speeds:
        return failed("link", saw, "the speed of the link cannot be read")
    if max(speeds) < limits.link_mbit_per_s:
        return failed("link", saw, f"{max(speeds):g} Mbit/s, {limits.link_mbit_per_s:g} are declared")
    return passed("link", saw)


def throttled(look: Look) -> Evidence:
    """No clock is capped, but by us: a board that is still throttled starts slower than its temperature tells."""
    capped, unknown, saw = [], [], []
    for policy in look["cpu_policies"]:
        highest, now = number(policy["hw_max_khz"]), number(policy["max_khz"])
        saw.append({key: policy[key] for key in ("policy", "max_khz", "hw_max_khz", "capped_by")})
        if highest is None or now is None:
            unknown.append(str(policy["policy"]))
        elif now < highest - CLOCK_NOISE_KHZ and not policy["capped_by"]:
            capped.append(
                f"{policy['policy']} is capped at {now / 1000:.0f} of {highest / 1000:.0f} MHz, and not by us"
            )
    if capped:
        return failed("throttled", {"policies": saw}, "; ".join(capped))
    why = f"the cap of {', '.join(unknown)} is not known" if unknown else "" if saw else "the board shows no CPU clock"
    return passed("throttled", {"policies": saw}, why)


def zone_celsius(look: Look, zone_types: tuple[str, ...]) -> tuple[str | None, float | None]:
    """The first of the zone types that the board has, and its hottest reading."""
    for wanted in zone_types:
        zones = [zone for zone in look["thermal"] if zone["type"] == wanted]
        if zones:
            values = [value for zone in zones if (value := number(zone["celsius"])) is not None]
            return wanted, max(values, default=None)
    return None, None


def idle(look: Look, limits: Limits, idle_celsius: float | None, idle_from: str) -> Evidence:
    """The start temperature is near to what this board has at rest: boards differ, so one limit for all lies."""
    zone, now = zone_celsius(look, limits.zone_types)
    saw = {"zone_type": zone, "celsius": now if now is not None else {"missing": "not read"}, "idle_from": idle_from}
    saw |= {"idle_celsius": idle_celsius if idle_celsius is not None else {"missing": "not known"}}
    saw |= {"max_above_idle_celsius": limits.max_above_idle_celsius}
    if now is None:
        return failed("idle", saw, f"no reading of {' or '.join(limits.zone_types)}")
    if idle_celsius is None:
        return passed("idle", saw, "its temperature at rest is not known (inventory variable idle_celsius)")
    above = now - idle_celsius
    if above > limits.max_above_idle_celsius:
        allowed = f"{limits.max_above_idle_celsius:g} are allowed"
        return failed("idle", saw, f"{zone} is at {now:.1f} degC, {above:.1f} above this board's idle; {allowed}")
    return passed("idle", saw)


def strays(look: Look) -> Evidence:
    """No program of a harness runs. One that `strays` has ended does not count."""
    found = look["strays"]
    if not found:
        return passed("strays", {"found": []})
    named = [
        f"{entry.get('exe') or entry.get('unit')} (pid {entry.get('pid')}, by {entry.get('how')})" for entry in found
    ]
    return failed("strays", {"found": list(found)}, "still runs: " + ", ".join(named))


def strays_at_rest(look: Look) -> Evidence:
    """As `strays`, between campaigns: an enabled service belongs there, and each run stops it and puts it back."""
    services = sorted({str(entry["unit"]) for entry in look["strays"] if entry.get("enabled")})
    evidence = strays({**look, "strays": [entry for entry in look["strays"] if not entry.get("enabled")]})
    if not evidence["ok"] or not services:
        return evidence
    return passed("strays", {"found": list(look["strays"])}, f"a run stops and restarts {', '.join(services)}")


def quiet(look: Look, limits: Limits) -> Evidence:
    """Nobody else works on the board. A virtual board shows its host's CPU use: there its own processes count."""
    load = look["load"]
    if load is None:
        return passed("quiet", {}, "not watched")
    saw = dict(load)
    named = [_name(entry) for entry in load["processes"] if entry["cpu_share"] > MAX_FOREIGN_CORE_SHARE]
    named += [f"registered load {entry['name']}" for entry in load["registered"] or ()]
    if named:
        return failed("quiet", saw, "others load the board: " + ", ".join(named))
    share = number(load["cpu_busy_share"])
    if load["registered"] is not None:
        return passed("quiet", saw)
    if share is None:
        return passed("quiet", saw, f"the CPU use is not known: {load['cpu_busy_share'].get('missing')}")
    if share > limits.max_foreign_cpu_share:
        small = ", ".join(_name(entry) for entry in load["processes"]) or "no process stands out"
        return failed(
            "quiet", saw, f"the CPUs are {share:.0%} busy, {limits.max_foreign_cpu_share:.0%} are allowed ({small})"
        )
    return passed("quiet", saw)


def _name(entry: Mapping[str, Any]) -> str:
    what = entry.get("script") or entry.get("exe") or entry.get("argv0") or "a process"
    unit = f", {entry['unit']}" if entry.get("unit") else ""
    return f"{what} (pid {entry['pid']}{unit}: {entry['cpu_share']:.0%} of a core)"


def cache(look: Look) -> Evidence:
    """The page cache could be dropped. Whether it was is proved at each run."""
    found = look["drop_caches"]
    if found["ok"]:
        return passed("cache", {"drop_caches": dict(found)})
    return failed("cache", {"drop_caches": dict(found)}, f"the page cache cannot be dropped: {found['why']}")
