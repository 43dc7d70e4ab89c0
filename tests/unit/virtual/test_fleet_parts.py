"""The parts of virtual fleets that need no board: names, addresses, processes, groups, plans, images, advice."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boardbench.errors import InputError, RigError
from boardbench.virtual import base_image, bwrap, cgroups, doctor, identity, processes, sandbox
from boardbench.virtual.base_image import Recipe
from boardbench.virtual.fleet import Fleet
from boardbench.virtual.processes import Mark
from boardbench.virtual.sandbox import BoardPlan, BootPlan

# ---- identity ----


def test_addresses_are_loopback_stable_and_differ_between_fleets(tmp_path: Path) -> None:
    first = identity.addresses(tmp_path / "a", ["x", "y"])
    assert first == identity.addresses(tmp_path / "a", ["x", "y"])
    assert all(address.startswith("127.") for address in first.values())
    assert len(set(first.values())) == 2
    assert identity.network(tmp_path / "a") != identity.network(tmp_path / "b")


def test_a_network_with_a_busy_address_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind((f"{identity.network(tmp_path)}.11", 0))
        busy.listen()
        port = busy.getsockname()[1]
        chosen = identity.addresses(tmp_path, ["x", "y"], port)
    assert chosen == {name: f"{identity.network(tmp_path, 1)}.{10 + n}" for n, name in enumerate(["x", "y"])}


def test_keys_are_made_once_and_pinned_in_openssh_format(tmp_path: Path) -> None:
    public = identity.ensure_key(tmp_path / "keys" / "k", "someone")
    assert public.startswith("ssh-ed25519 ")
    assert identity.ensure_key(tmp_path / "keys" / "k", "someone") == public
    assert stat.S_IMODE((tmp_path / "keys" / "k").stat().st_mode) == 0o600
    pinned = tmp_path / "known_hosts"
    pinned.write_text(identity.known_hosts_text({"127.9.9.10": public}))
    done = subprocess.run(
        ["ssh-keygen", "-F", "[127.9.9.10]:2222", "-f", str(pinned)], capture_output=True, text=True, check=True
    )
    assert public.split()[1] in done.stdout


def test_machine_ids_are_hex_and_stable(tmp_path: Path) -> None:
    one = identity.machine_id(tmp_path, "king")
    assert len(one) == 32
    assert int(one, 16) >= 0
    assert one == identity.machine_id(tmp_path, "king") != identity.machine_id(tmp_path, "queen")


@pytest.mark.parametrize("name", ["", "a/b", "..", "Upper", "-x", "x" * 60, "a b"])
def test_a_fleet_name_that_cannot_be_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be the name of a virtual fleet"):
        Fleet.open(name, tmp_path)


def test_a_fleet_that_was_never_started_has_a_status_and_may_be_taken_down(tmp_path: Path) -> None:
    fleet = Fleet.open("none", tmp_path)
    assert (fleet.status().kind, fleet.status().boards) == ("", {})
    fleet.down()
    assert list(tmp_path.iterdir()) == []


# ---- processes ----


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_process_is_known_by_pid_and_start_time() -> None:
    child = sleeper()
    mark = processes.mark_of(child.pid)
    assert mark is not None
    assert processes.alive(mark)
    assert processes.from_dict(mark.as_dict()) == mark
    stranger = Mark(mark.pid, mark.start_time_ticks + 1)
    assert not processes.alive(stranger)
    assert not processes.send(stranger, signal.SIGKILL)
    assert child.poll() is None, "a process with the same pid and another start time was signalled"
    assert processes.end([mark], grace_s=2.0) == []
    assert not processes.alive(mark)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    mark = processes.mark_of(child.pid)
    assert mark is not None
    assert processes.end([mark], grace_s=0.1) == []
    child.stdout.close()
    child.wait()


def test_a_zombie_counts_as_gone_and_descendants_are_found() -> None:
    code = "import subprocess, time; subprocess.Popen(['sleep', '60']); print('on', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    below = processes.descendants(child.pid)
    assert [Path(processes.executable(mark.pid) or "").name for mark in below] == ["sleep"]
    child.kill()
    deadline = time.monotonic() + 5
    while processes.mark_of(child.pid) is not None:
        assert time.monotonic() < deadline
    assert processes.end(below, grace_s=0.0) == []
    child.stdout.close()
    child.wait()


# ---- control groups ----


def test_hybrid_and_pure_layouts_are_told_apart(tmp_path: Path) -> None:
    for tree in ("systemd", "unified", "memory", "cpu"):
        (tmp_path / "v1" / tree).mkdir(parents=True)
        (tmp_path / "v1" / tree / "cgroup.procs").touch()
    assert [tree.name for tree in cgroups.trees(tmp_path / "v1")] == ["systemd", "unified", "memory"]
    assert cgroups.memory_folder("127.1.2.3", tmp_path / "v1") == tmp_path / "v1/memory/boardbench-127.1.2.3"
    pure = tmp_path / "v2"
    pure.mkdir()
    (pure / "cgroup.controllers").write_text("cpu memory\n")
    (pure / "cgroup.subtree_control").write_text("")
    assert cgroups.trees(pure) == [pure]
    assert cgroups.memory_folder("127.1.2.3", pure) is None
    assert cgroups.make("boardbench-x", pure) == [pure / "boardbench-x"]
    assert cgroups.trees(tmp_path / "none") == []


def test_groups_are_removed_with_all_below(tmp_path: Path) -> None:
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/cgroup.procs").touch()
    (tmp_path / "systemd/boardbench-127.1.2.3/payload/system.slice").mkdir(parents=True)
    left = cgroups.left_by(["127.1.2.3", "127.1.2.4"], tmp_path)
    assert [folder.name for folder in left] == ["boardbench-127.1.2.3"]
    assert cgroups.remove(left[0]) == []
    assert cgroups.left_by(["127.1.2.3"], tmp_path) == []


# ---- sandbox ----


def test_a_boot_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = BootPlan(("a", "b c"), "127.1.1.1", 2222, ("/x",), "/y", ("/z",), "/r")
    plan.write(tmp_path / "plan.json")
    assert BootPlan.read(tmp_path / "plan.json") == plan


def test_mounts_below_a_folder_come_deepest_first() -> None:
    mounts = [
        "fuse /a/tree fuse rw 0 0",
        "x /a/tree/sub\\040dir ext4 rw 0 0",
        "y /ab ext4 rw 0 0",
        "z / ext4 rw 0 0",
    ]
    assert sandbox.mounts_below(Path("/a"), mounts) == ["/a/tree/sub dir", "/a/tree"]


def test_a_tree_with_unreadable_folders_is_removed(tmp_path: Path) -> None:
    deep = tmp_path / "gone" / "closed" / "deep"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    deep.parent.chmod(0)
    sandbox.remove_tree(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_sshd_listens_on_the_boards_address_only_and_takes_keys_only(tmp_path: Path) -> None:
    plan = BoardPlan("king", "nanopi-r76s", "127.3.2.1", 2222, tmp_path, "0" * 32, "ssh-ed25519 K", tmp_path / "k")
    lines = sandbox.sshd_config(plan, "/etc/ssh/host_key", "/etc/ssh/authorized_keys").splitlines()
    assert [line for line in lines if line.startswith(("ListenAddress", "Port"))] == ["ListenAddress 127.3.2.1:2222"]
    assert "PasswordAuthentication no" in lines
    assert "KbdInteractiveAuthentication no" in lines


def test_the_service_manager_is_compiled_once_for_the_boards_python(tmp_path: Path) -> None:
    folder = bwrap.ensure_systemctl(tmp_path, sys.executable)
    assert (folder / "systemctl3.py").is_file()
    compiled = list(folder.glob("__pycache__/*.pyc"))
    assert len(compiled) == 1
    before = compiled[0].stat().st_mtime_ns
    assert bwrap.ensure_systemctl(tmp_path, sys.executable) == folder
    assert compiled[0].stat().st_mtime_ns == before
    assert [path.name for path in (tmp_path / "systemctl").iterdir()] == [folder.name]


def test_the_boards_python_is_the_hosts_or_the_running_one(tmp_path: Path) -> None:
    system = tmp_path / "python3"
    system.touch()
    assert bwrap.board_python(system).path == "/usr/bin/python3"
    other = bwrap.board_python(tmp_path / "none")
    assert Path(other.path).name.startswith("python3")
    assert all(Path(source).exists() for source, _ in other.binds)


# ---- base image ----


def test_sources_are_read_in_both_formats() -> None:
    text = """# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: trixie trixie-updates
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: trixie
"""
    assert base_image.parse_apt_sources(text) == [
        ("http://mirror.example/debian", "trixie"),
        ("http://mirror.example/debian", "trixie-updates"),
    ]
    lines = (
        "deb [arch=amd64 signed-by=/k.gpg] https://m.example/debian bookworm main\ndeb-src http://n.example x main\n"
    )
    assert base_image.parse_apt_sources(lines) == [("https://m.example/debian", "bookworm")]


def etc_with(folder: Path, release: str, sources: str) -> Path:
    (folder / "apt").mkdir(parents=True)
    (folder / "os-release").write_text(release)
    (folder / "apt/sources.list").write_text(sources)
    return folder


def test_the_recipe_follows_the_hosts_suite_and_mirror_and_names_none_of_its_own(tmp_path: Path) -> None:
    debian = etc_with(
        tmp_path / "d", "ID=debian\nVERSION_CODENAME=trixie\n", "deb http://m.example/debian trixie main\n"
    )
    assert base_image.recipe_for_host(debian) == Recipe("trixie", "http://m.example/debian", "main")
    ubuntu = etc_with(tmp_path / "u", 'ID=ubuntu\nVERSION_CODENAME="noble"\n', "")
    assert base_image.recipe_for_host(ubuntu) == Recipe("noble", "", "main,universe")
    other = etc_with(tmp_path / "o", "ID=fedora\n", "")
    assert base_image.recipe_for_host(other) == Recipe("bookworm", "", "main")


def test_the_image_key_follows_the_content_and_not_the_mirror() -> None:
    recipe = Recipe("bookworm", "http://a", "main")
    assert recipe.key == Recipe("bookworm", "http://b", "main").key
    assert recipe.key != Recipe("trixie", "http://a", "main").key
    assert recipe.key != Recipe("bookworm", "http://a", "main", packages=("systemd",)).key


FAKE_DEBOOTSTRAP = """#!/bin/sh
set -e
for word in "$@"; do case $word in /*) target=$word;; esac; done
echo "I: Retrieving Packages"
mkdir -p "$target/etc/ssh" "$target/etc/sudoers.d" "$target/etc/systemd/system" "$target/var/lib/dbus"
touch "$target/etc/ssh/ssh_host_rsa_key" "$target/etc/passwd" "$target/etc/group" "$target/etc/shadow"
echo 1 >"$target/etc/machine-id"
"""


@pytest.fixture
def fake_debootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "bin" / "debootstrap"
    tool.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    tool.write_text(FAKE_DEBOOTSTRAP)
    tool.chmod(0o755)
    return tool


@pytest.mark.skipif(os.geteuid() != 0, reason="base images are built by root only")
def test_an_image_is_built_once_whole_and_belongs_to_no_machine(tmp_path: Path, fake_debootstrap: Path) -> None:
    recipe, said = Recipe("bookworm", "http://m.example", "main"), list[str]()
    tree = base_image.ensure(tmp_path / "cache", recipe, said.append)
    assert "image: fetching the package list" in said
    assert not list(tree.glob("etc/ssh/ssh_host_*"))
    assert not (tree / "etc/machine-id").exists()
    assert os.readlink(tree / "etc/systemd/system/ssh.service") == "/dev/null"
    assert "pi:x:1000:1000" in (tree / "etc/passwd").read_text()
    fake_debootstrap.write_text("#!/bin/sh\nexit 1\n")
    assert base_image.ensure(tmp_path / "cache", recipe, said.append) == tree


@pytest.mark.skipif(os.geteuid() != 0, reason="base images are built by root only")
def test_a_failed_build_leaves_no_image_and_says_why(tmp_path: Path, fake_debootstrap: Path) -> None:
    fake_debootstrap.write_text("#!/bin/sh\necho 'I: x'\necho 'E: Failed getting release file'\nexit 1\n")
    recipe = Recipe("bookworm", "http://m.example", "main")
    with pytest.raises(RigError, match="E: Failed getting release file"):
        base_image.ensure(tmp_path / "cache", recipe, lambda _text: None)
    assert not base_image.image_path(tmp_path / "cache", recipe).exists()
    assert not list((tmp_path / "cache/images").glob("*.partial-*"))


# ---- doctor ----


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor restricts them"),
        ({"kernel/unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone=1"),
        ({"user/max_user_namespaces": "0"}, "user.max_user_namespaces"),
        ({}, "container"),
    ],
)
def test_the_reason_for_missing_user_namespaces_is_named(settings: dict[str, str], expected: str) -> None:
    assert expected in doctor._user_namespace_advice(settings.get)


def test_what_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "_PATH", str(tmp_path))
    obstacles = doctor.bwrap_obstacles()
    assert [str(obstacle) for obstacle in obstacles] == [
        "sshd is not installed: apt-get install openssh-server",
        "ssh-keygen is not installed: apt-get install openssh-client",
        "bwrap is not installed: apt-get install bubblewrap",
        "unshare is not installed: apt-get install util-linux",
        "nsenter is not installed: apt-get install util-linux",
    ]
    with pytest.raises(RigError, match="apt-get install bubblewrap"):
        doctor.choose_kind("bwrap", tmp_path)
    with pytest.raises(InputError, match="auto, bwrap or nspawn"):
        doctor.choose_kind("docker", tmp_path)


def test_auto_falls_back_to_bwrap_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "nspawn_obstacles", lambda _folder: [doctor.Obstacle("not root", "run as root")])
    monkeypatch.setattr(doctor, "bwrap_obstacles", list)
    assert doctor.choose_kind("auto", tmp_path) == doctor.Choice("bwrap", "nspawn is not possible: not root")
    with pytest.raises(RigError, match="not root"):
        doctor.choose_kind("nspawn", tmp_path)
    monkeypatch.setattr(doctor, "nspawn_obstacles", lambda _folder: [])
    assert doctor.choose_kind("auto", tmp_path).kind == "nspawn"
