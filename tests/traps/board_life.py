"""Traps in what happens while a run is on: a campaign by real sshd, with a hand on the board at the wrong moment."""

from __future__ import annotations

from threading import Timer

from .harness import Off, OffOnBoard, Trap
from .made_files import gate_off, gives
from .scene import Scene, until

LOGGER = "/opt/boardbench/payloads/thermal-logger/thermal_logger.py"
BURN = "/opt/boardbench/payloads/burn/burn.py"


def reboots(scene: Scene) -> list[str]:
    """The board reboots when its load is through and nobody looks, and answers as if nothing had been."""

    def reboot() -> None:
        until(lambda: scene.pids_of("king", BURN) == [], "the load ends")
        # Long enough for the logger's row after the end of the load.
        until(lambda: scene.log_is_past("king", "end"), "the log covers the load")
        scene.fleet.reboot("king")

    return scene.board_campaign(after_load=reboot)


def logger_is_killed(scene: Scene) -> list[str]:
    """The logger dies in the middle of the load (out of memory, say); the load goes on."""

    def kill() -> None:
        until(lambda: scene.log_is_past("king", "start"), "the logger logs the load")
        scene.kill("king", scene.pids_of("king", LOGGER))

    return scene.board_campaign(during=kill, duration_s=480)


def fan_by_hand(scene: Scene) -> list[str]:
    """Somebody gives a fanless board some air in the middle of its run; when the product looks again, it is away."""
    air = Timer(1.5, scene.fan("king").write_text, ["1\n"])
    scene.later(air.cancel)
    return scene.board_campaign(
        during=air.start, after_load=lambda: scene.fan("king").write_text("0\n"), duration_s=1080
    )


TRAPS = (
    Trap(
        "fan-switched-in-a-fanless-run", "by-hand", fan_by_hand,
        "cooling-not-as-planned: the temperature shows a fall by",
        (Off("boardbench.results.fanwatch:find_break", gives(None)),), on_boards=True,
    ),
    Trap(
        "reboot-that-looks-like-slowness", "", reboots, "rebooted: ",
        (OffOnBoard("stamps", "boot_id", 'lambda places: "always-the-same"'),), on_boards=True,
        # The logger is no part of our program, and reads the boot id for itself.
        # And what was set for the run went with the reboot, which is seen when it is read back after the load.
        also=("is from another boot than the run", "setting-not-applied", "has no valid attempt: setting-not-applied$"),
    ),
    Trap(
        "logger-died-or-too-short", "killed", logger_is_killed, "logger-short: .*log ends .* before the load",
        (gate_off("logger"),), on_boards=True,
    ),
)  # fmt: skip
