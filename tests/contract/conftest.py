"""One contract, two boards: local processes over pipes, and a real sshd. Both run the real stub and the real wire."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import boardbench
from boardbench import known_hosts, program
from boardbench.board import Door
from boardbench.inventory import Board
from boardbench.ssh import SshLink

from .local_sshd import Sshd, board_at
from .pipe_link import PipeLink

_VERBS = ("echo", "tell", "take", "flood", "chatter", "hang", "garbage", "fail", "stumble", "die")


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> program.Program:
    """The board's side as shipped, and the contract's own verbs beside it."""
    source = tmp_path_factory.mktemp("program") / "remote"
    shutil.copytree(
        Path(boardbench.__file__).parent / "remote", source, ignore=shutil.ignore_patterns("__pycache__", "*.toml")
    )
    shutil.copy(Path(__file__).parent / "contract_verbs.py", source / "contract_verbs.py")
    with (source / "main.py").open("a") as main:
        for verb in _VERBS:
            main.write(f'VERBS["{verb}"] = ("contract_verbs", "{verb}")\n')
    return program.build(source)


class Bench:
    """A board to make doors to. `root` plays its `/`."""

    def __init__(self, kind: str, board: Board, root: Path, open_door: Callable[[], Door]) -> None:
        self.kind = kind
        self.board = board
        self.root = root
        self.open = open_door


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One sshd for all tests that do not hurt it."""
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def pinned(sshd: Sshd) -> Path:
    """A known_hosts file with the key of that sshd."""
    path = sshd.folder / "known_hosts"
    access = sshd.board().access
    known_hosts.trust(path, access, known_hosts.fetch_key(access))
    return path


@pytest.fixture(params=["pipes", "sshd"])
def bench(request: pytest.FixtureRequest, app: program.Program, tmp_path: Path) -> Iterator[Bench]:
    """The board in both forms, its root folder empty."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "proc").symlink_to("/proc")
    doors: list[Door] = []
    links: list[PipeLink] = []
    if request.param == "pipes":
        board = board_at(1, tmp_path / "no-key")

        def open_door() -> Door:
            links.append(PipeLink())
            doors.append(Door(board, links[-1], app=app, root=str(root)))
            return doors[-1]
    else:
        server: Sshd = request.getfixturevalue("sshd")
        known: Path = request.getfixturevalue("pinned")
        board = server.board()

        def open_door() -> Door:
            link = SshLink.open(board.access, known, where=board.name, deadline_s=20)
            doors.append(Door(board, link, app=app, root=str(root)))
            return doors[-1]

    yield Bench(str(request.param), board, root, open_door)
    for door in doors:
        door.close()
    for link in links:
        link.reap()
