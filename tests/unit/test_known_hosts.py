"""Pinned host keys: what the file keeps, and how it is changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import paramiko
import pytest

from boardbench import known_hosts
from boardbench.errors import InputError
from boardbench.inventory import Access, Board, Cooling, Identity, Inventory


@pytest.fixture(scope="module")
def keys() -> list[paramiko.PKey]:
    return [paramiko.ECDSAKey.generate(bits=256) for _ in range(3)]


def _inventory(path: Path, boards: dict[str, Access]) -> Inventory:
    made = {
        name: Board(name, "host", access, (), frozenset(), Cooling(), Identity(), {}, "t:1")
        for name, access in boards.items()
    }
    return Inventory(path, made, {}, path, None)


KING, QUEEN, JACK = Access("10.0.0.1"), Access("10.0.0.2", 2222), Access("10.0.0.3")


def test_a_trusted_key_is_read_back_under_its_name(tmp_path: Path, keys: list[paramiko.PKey]) -> None:
    path = tmp_path / "new folder" / "known_hosts"
    done = known_hosts.trust(path, QUEEN, keys[0])
    assert done.before == ()
    assert done.changed
    (pin,) = known_hosts.pins(path, QUEEN)
    assert pin.name == "[10.0.0.2]:2222"
    assert pin.key_base64 == keys[0].get_base64()
    assert pin.fingerprint == done.after
    assert known_hosts.pins(path, KING) == ()


def test_the_fingerprint_is_the_one_that_openssh_prints(tmp_path: Path, keys: list[paramiko.PKey]) -> None:
    file = tmp_path / "key.pub"
    file.write_text(f"{keys[0].get_name()} {keys[0].get_base64()}\n")
    said = subprocess.run(["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True).stdout
    assert known_hosts.fingerprint(keys[0]) == said.split()[1]


def test_a_new_key_replaces_the_old_and_leaves_others_and_comments(tmp_path: Path, keys: list[paramiko.PKey]) -> None:
    path = tmp_path / "known_hosts"
    known_hosts.trust(path, KING, keys[0])
    known_hosts.trust(path, JACK, keys[1])
    path.write_text("# our rig\n" + path.read_text())
    done = known_hosts.trust(path, KING, keys[2])
    assert done.before == (known_hosts.fingerprint(keys[0]),)
    assert path.read_text().startswith("# our rig\n")
    assert [pin.key_base64 for pin in known_hosts.pins(path, KING)] == [keys[2].get_base64()]
    assert len(known_hosts.pins(path, JACK)) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["known_hosts"]


def test_trusting_the_same_key_again_changes_nothing(tmp_path: Path, keys: list[paramiko.PKey]) -> None:
    path = tmp_path / "known_hosts"
    known_hosts.trust(path, KING, keys[0])
    text = path.read_text()
    assert not known_hosts.trust(path, KING, keys[0]).changed
    assert path.read_text() == text


def test_a_line_with_several_names_loses_only_the_one(tmp_path: Path, keys: list[paramiko.PKey]) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"10.0.0.1,10.0.0.3 {keys[0].get_name()} {keys[0].get_base64()} a comment\n")
    gone = known_hosts.forget(path, KING)
    assert [pin.name for pin in gone] == ["10.0.0.1"]
    assert path.read_text().startswith("10.0.0.3 ")
    assert known_hosts.forget(path, KING) == ()


def test_boards_with_one_key_are_noticed(tmp_path: Path, keys: list[paramiko.PKey]) -> None:
    path = tmp_path / "known_hosts"
    known_hosts.trust(path, KING, keys[0])
    known_hosts.trust(path, QUEEN, keys[0])
    known_hosts.trust(path, JACK, keys[1])
    inventory = _inventory(path, {"king": KING, "queen": QUEEN, "jack": JACK})
    assert known_hosts.duplicates(inventory) == (("king", "queen"),)
    known_hosts.trust(path, QUEEN, keys[2])
    assert known_hosts.duplicates(inventory) == ()


def test_a_missing_file_pins_nothing(tmp_path: Path) -> None:
    assert known_hosts.read(tmp_path / "none") == ()
    assert known_hosts.duplicates(_inventory(tmp_path / "none", {"king": KING})) == ()


@pytest.mark.parametrize("line", ["nonsense", "host ssh-ed25519 !!!", "host ssh-ed25519 AAAA"])
def test_a_line_that_is_no_key_is_named_with_its_place(tmp_path: Path, line: str) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"# fine\n{line}\n")
    with pytest.raises(InputError, match=r"known_hosts:2: is no host key"):
        known_hosts.read(path)


def test_an_alias_is_pinned_under_the_host_that_ssh_config_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host k\n HostName 192.0.2.7\n Port 2200\n")
    from boardbench.ssh import pin_name

    assert pin_name(Access("k", alias="k")) == "[192.0.2.7]:2200"
    assert pin_name(Access("192.0.2.9", alias="not-in-the-file")) == "192.0.2.9"
