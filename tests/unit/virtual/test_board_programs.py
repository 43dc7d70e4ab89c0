"""tegrastats and nvpmodel of a virtual Jetson, run against the files of a daemon."""

import contextlib
import os
import re
import subprocess
import sys

import pytest

from boardbench.virtual import fuse_fs
from boardbench.virtual.boards import binds
from boardbench.virtual.jetson_text import POWER_MODES

from .daemon_process import Fleet, eventually

MODE = "plain" if fuse_fs.why_not() else "fuse"
GPU = "sys/class/devfreq/17000000.gpu/"
LINE = re.compile(
    r"^\d\d-\d\d-\d{4} \d\d:\d\d:\d\d RAM \d+/\d+MB \(lfb \d+x4MB\) SWAP \d+/\d+MB \(cached \d+MB\) "
    r"CPU \[((\d+%@\d+|off)(,(\d+%@\d+|off)){5})\] "
    r"(EMC_FREQ \d+%@\d+ )?GR3D_FREQ \d+%(@\[\d+\])?( NVDEC off .*APE 200)? "
    r"cpu@[\d.]+C soc2@[\d.]+C soc0@[\d.]+C gpu@[\d.]+C tj@[\d.]+C soc1@[\d.]+C "
    r"VDD_IN (\d+)mW/(\d+)mW VDD_CPU_GPU_CV \d+mW/\d+mW VDD_SOC \d+mW/\d+mW$"
)


@pytest.fixture(scope="module")
def orin(tmp_path_factory):
    with Fleet(tmp_path_factory.mktemp("fleet"), MODE, {"orin": "jetson-orin-nano"}) as fleet:
        yield fleet


@contextlib.contextmanager
def tegrastats(fleet, *arguments):
    """The program while it runs."""
    environment = {
        **os.environ,
        "TEGRASTATS_SYS": str(fleet.path("orin", "sys")),
        "TEGRASTATS_LOADS": str(fleet.folder / "ctl/orin/load"),
    }
    argv = [sys.executable, str(fleet.path("orin", "usr/local/bin/tegrastats")), *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def nvpmodel(orin, tmp_path):
    """Runs the tool on a board whose /var is `tmp_path` and whose /sys is the daemon's."""
    (tmp_path / "sys").symlink_to(orin.path("orin", "sys"))

    def run(*arguments, answer=""):
        environment = {
            **os.environ,
            "NVPMODEL_ROOT": str(tmp_path),
            "NVPMODEL_CONF": str(orin.path("orin", "etc/nvpmodel.conf")),
        }
        argv = [sys.executable, str(orin.path("orin", "usr/local/bin/nvpmodel")), *arguments]
        return subprocess.run(
            argv, capture_output=True, text=True, env=environment, input=answer, timeout=20, check=False
        )

    yield run
    (orin.folder / "ctl/orin/reboot").touch()
    eventually(lambda: not (orin.folder / "ctl/orin/reboot").exists())


def test_tegrastats_prints_lines_in_the_jetpack_6_format(orin, tmp_path):
    log = tmp_path / "log"
    with tegrastats(orin, "--interval", "20", "--logfile", str(log)):
        eventually(lambda: log.exists() and log.read_text().count("\n") >= 3)
    lines = log.read_text().splitlines()
    found = [LINE.match(line) for line in lines]
    assert all(found), lines[0]
    # The second number of a rail is the mean since the start.
    first = found[0]
    assert first.group(first.lastindex - 1) == first.group(first.lastindex)
    assert "cv0" not in lines[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="memory and GPU clocks are shown to root only")
def test_tegrastats_shows_clocks_to_root(orin):
    with tegrastats(orin, "--interval", "50") as process:
        line = process.stdout.readline()
    assert "EMC_FREQ 0%@204" in line
    assert "GR3D_FREQ 0%@[306]" in line


def test_nvpmodel_shows_the_mode_at_power_on(nvpmodel):
    assert nvpmodel("-q").stdout == "NV Power Mode: MAXN_SUPER\n2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set the power mode")
def test_nvpmodel_sets_clocks_and_remembers_the_mode(orin, nvpmodel, tmp_path):
    done = nvpmodel("-m", "0")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert nvpmodel("-q").stdout == "NV Power Mode: 15W\n0\n"
    assert (tmp_path / "var/lib/nvpmodel/status").read_text() == "pmode:0000\n"
    eventually(lambda: orin.read("orin", GPU + "max_freq") == "612000000")
    eventually(lambda: orin.read("orin", "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq") == "1497600")
    assert nvpmodel("-m", "2").returncode == 0
    eventually(lambda: orin.read("orin", GPU + "max_freq") == "1020000000")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set the power mode")
@pytest.mark.parametrize(("answer", "code"), [("", 234), ("no\n", 234), ("YES\n", 0)])
def test_nvpmodel_asks_before_a_mode_with_other_cores(orin, nvpmodel, answer, code):
    done = nvpmodel("-m", "3", answer=answer)
    assert done.returncode == code
    assert "DO YOU WANT TO REBOOT NOW?" in done.stdout
    cores = "0-3" if code == 0 else "0-5"
    eventually(lambda: orin.read("orin", "sys/devices/system/cpu/online") == cores)
    assert nvpmodel("-q").stdout.splitlines()[1] == ("3" if code == 0 else "2")


def test_nvpmodel_refuses_a_mode_that_is_not_there(nvpmodel):
    done = nvpmodel("-m", "9")
    assert done.returncode != 0
    assert "NVPM ERROR" in done.stderr


def test_the_super_modes_are_those_of_the_kit():
    assert [mode.name for mode in POWER_MODES] == ["15W", "25W", "MAXN_SUPER", "7W"]


@pytest.mark.parametrize("sandbox", ["bwrap", "nspawn"])
def test_every_bind_of_a_sandbox_exists_once_the_daemon_is_ready(orin, sandbox):
    found = binds("jetson-orin-nano", orin.folder / "tree/orin", orin.folder / "ctl/orin", sandbox)
    assert [bind.source for bind in found if not bind.source.exists()] == []
    targets = [bind.target for bind in found]
    assert len(set(targets)) == len(targets)
    assert "/run/boardbench-virtual" in targets
    assert "/proc/sys/vm/drop_caches" in targets
    assert ("/sys" in targets) == (sandbox == "bwrap")
