"""The sensors of a board as columns of a table: found by type and by name, never by number.

Each column's `read` gives a number, or raises Missing with the reason: never 0 for what could not be read.
"""

import errno
import os
import re

GPU_NODES = ("gv11b", "gp10b", "ga10b", "gb10b", "gpu", "mali")
NPU_NODES = ("npu", "rknpu")
SHUNT_SUM = "sum of shunt voltages"  # an ina3221 channel that is no rail
# What no chip can have is how some drivers say "switched off".
COLDEST_CELSIUS, HOTTEST_CELSIUS = -60.0, 200.0


class Missing(Exception):
    """There is no value; the text says why, without `;` and line ends."""


class Source:
    """A number in a file of the kernel.

    The file stays open and is read again at 0, which is how sysfs gives a fresh value for one system call. A file
    whose size is that of its content is no such file (it may be replaced by another one), nor is one that cannot be
    read at an offset: those are opened for each reading.
    """

    def __init__(self, path):
        self.path = path
        self._fd = -1

    def text(self):
        """The text now, without white space around it; raises Missing."""
        try:
            raw = self._again() if self._fd >= 0 else self._first()
        except OSError as error:
            self._close()
            name = errno.errorcode.get(error.errno, f"errno {error.errno}")
            raise Missing(f"{error.strerror.lower()} ({name})") from None
        text = raw.decode("utf-8", "replace").strip()
        if not text:
            raise Missing("empty")
        return text

    def number(self):
        """The number now; raises Missing."""
        text = self.text()
        try:
            return int(text, 10)
        except ValueError:
            raise Missing("not a number: {}".format(re.sub(r"[^ -:<-~]", "?", text[:40]))) from None

    def _first(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            raw = os.read(fd, 4096)
            if os.fstat(fd).st_size != len(raw):
                try:
                    os.pread(fd, 1, 0)
                except OSError:
                    return raw
                self._fd, fd = fd, -1
            return raw
        finally:
            if fd >= 0:
                os.close(fd)

    def _again(self):
        return os.pread(self._fd, 4096, 0)

    def _close(self):
        # A driver that was unbound or reset gives a new file: the next reading opens it.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Column:
    """A column of the table: its name, the files that it is read from, and how."""

    def __init__(self, name, paths, read):
        self.name = name
        self.source = " ".join(paths)
        self.read = read


def entries(folder):
    """The names in a folder, zone2 before zone10; none when there is no such folder."""

    def natural(name):
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    try:
        return sorted(os.listdir(folder), key=natural)
    except OSError:
        return []


def word(path):
    """The text of a file that only names something, or an empty text."""
    try:
        return Source(path).text()
    except Missing:
        return ""


def column_word(text):
    """A name from the kernel as it may stand in a column's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).lstrip("_.-") or "unknown"


def numbered(names):
    """Unique names: the second `x` becomes `x_2`."""
    seen = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def thermal_columns(sys_root):
    """Every thermal zone; one bad zone costs only its own field."""
    base = os.path.join(sys_root, "class/thermal")
    zones = [os.path.join(base, name) for name in entries(base) if re.match(r"thermal_zone\d+\Z", name)]
    names = numbered([column_word(word(os.path.join(zone, "type"))) for zone in zones])
    return [_zone(name, zone) for name, zone in zip(names, zones)]


def _zone(name, zone):
    path = os.path.join(zone, "temp")
    source, mode = Source(path), Source(os.path.join(zone, "mode"))

    def disabled():
        try:
            return mode.text() == "disabled"
        except Missing:
            return False  # not every kernel has this file

    def read():
        if disabled():
            raise Missing("zone disabled")
        celsius = source.number() / 1000
        if not COLDEST_CELSIUS <= celsius <= HOTTEST_CELSIUS:
            raise Missing(f"sensor off or not a temperature: {celsius:g}")
        return celsius

    return Column(name + "_celsius", [path], read)


def clock_columns(sys_root):
    """The clocks now of all CPU policies and of the NPU and GPU, and the bound that the kernel puts on the CPU now."""
    found = []
    base = os.path.join(sys_root, "devices/system/cpu/cpufreq")
    for policy in entries(base):
        if policy.startswith("policy"):
            for short, file in (("cur", "scaling_cur_freq"), ("max", "scaling_max_freq")):
                path = os.path.join(base, policy, file)
                found.append(Column(f"{policy}_{short}_khz", [path], Source(path).number))
    base = os.path.join(sys_root, "class/devfreq")
    devices = [(devfreq_kind(os.path.join(base, name), name), name) for name in entries(base)]
    devices = [(kind, name) for kind, name in devices if kind]
    for kind, (_, name) in zip(numbered([kind for kind, _ in devices]), devices):
        path = os.path.join(base, name, "cur_freq")
        found.append(Column(kind + "_cur_hz", [path], Source(path).number))
    return found


def devfreq_kind(folder, name):
    """`gpu` or `npu`, by the device tree node's name or else the device's own; None for another device."""
    for text in (word(os.path.join(folder, "device/of_node/name")).strip("\0"), name):
        tail = text.lower().partition("@")[0].rpartition(".")[2]
        for kind, nodes in (("npu", NPU_NODES), ("gpu", GPU_NODES)):
            if any(tail == node or tail.startswith(node + "-") for node in nodes):
                return kind
    return None


def hwmons(sys_root):
    """(folder, name) of every hwmon."""
    base = os.path.join(sys_root, "class/hwmon")
    return [(os.path.join(base, entry), word(os.path.join(base, entry, "name"))) for entry in entries(base)]


def rail_columns(sys_root):
    """(label, volts file, amperes file) of every rail of an ina3221."""
    rails = []
    for folder, name in hwmons(sys_root):
        for channel in range(1, 8) if name == "ina3221" else ():
            label = word(os.path.join(folder, f"in{channel}_label"))
            volts = os.path.join(folder, f"in{channel}_input")
            amperes = os.path.join(folder, f"curr{channel}_input")
            if label and label != SHUNT_SUM and os.path.exists(amperes):
                rails.append((column_word(label), volts, amperes))
    return rails


def _watts(label, volts_path, amperes_path):
    volts, amperes = Source(volts_path), Source(amperes_path)
    # Millivolts times milliamperes.
    return Column(label + "_watts", [volts_path, amperes_path], lambda: volts.number() * amperes.number() / 1e6)


def power_columns(sys_root):
    """The input voltage, and the watts of every rail."""
    rails = rail_columns(sys_root)
    base = os.path.join(sys_root, "class/power_supply")
    supplies = sorted(entries(base), key=lambda name: (name != "simple-vin", name))
    paths = [
        (os.path.join(base, name, "voltage_now"), 1e6)
        for name in supplies
        if word(os.path.join(base, name, "type")) != "Battery"
    ]
    # A Jetson has no such supply, but a rail that is its input.
    paths += [(volts, 1e3) for label, volts, _ in rails if label == "VDD_IN"]
    labels = numbered([label for label, _, _ in rails])
    return [
        _first_that_exists("input_volts", paths, "no sensor for the input voltage"),
        *(_watts(label, volts, amperes) for label, (_, volts, amperes) in zip(labels, rails)),
    ]


def fan_columns(sys_root):
    """What the fan is told, and how fast it turns: often two different devices."""
    folders = [folder for folder, _ in hwmons(sys_root)]
    turns = [os.path.join(folder, file) for folder in folders for file in ("fan1_input", "rpm")]
    levels = [os.path.join(folder, "pwm1") for folder in folders]
    return [
        _first_that_exists("fan_pwm", [(path, 1) for path in levels], "no fan control"),
        _first_that_exists("fan_rpm", [(path, 1) for path in turns], "no tachometer"),
    ]


def _first_that_exists(name, paths, why_not):
    for path, divisor in paths:
        if os.path.exists(path):
            return Column(name, [path], _scaled(Source(path), divisor))

    def read():
        raise Missing(why_not)

    return Column(name, [], read)


def _scaled(source, divisor):
    return source.number if divisor == 1 else lambda: round(source.number() / divisor, 6)


def find_columns(sys_root):
    """All columns of this board, in the order of the table."""
    return [
        *thermal_columns(sys_root),
        *clock_columns(sys_root),
        *power_columns(sys_root),
        *fan_columns(sys_root),
    ]
