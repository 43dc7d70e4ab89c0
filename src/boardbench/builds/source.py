"""Where source comes from: a package pinned by hash, or a tarball, folder or git checkout that the user names."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from boardbench.errors import InputError, RigError
from boardbench.payload import hash_file

from .recipe import Pinned
from .voice import Voice

MARK = "CMakeLists.txt"
"""What is built has this file at its top."""
_DOWNLOAD_S = 900.0


@dataclass(frozen=True)
class Source:
    """`id` changes exactly when the bytes do; `commit` is what is known of the version; `unpack` fills a new folder."""

    id: str
    label: str
    commit: str
    unpack: Callable[[Path], None]


def pinned(source: Pinned, cache: Path, voice: Voice) -> Source:
    """The pinned source. Nothing is fetched before it is unpacked, and it is fetched once."""
    label = f"{source.package} {source.version}"

    def unpack(target: Path) -> None:
        _untar(_download(source, cache, voice), source.inside, target)

    return Source(f"sha256:{source.sha256}/{source.inside}", label, source.commit, unpack)


def named(path: Path, inside: str, where: str = "--source") -> Source:
    """The source that the user names: a tarball, a git checkout or a plain folder. InputError for anything else.

    Of a checkout everything counts that git does not ignore, also what is not committed.
    """
    path = path.expanduser()
    if path.is_dir():
        return _tree(path.resolve(), where)
    if not path.is_file():
        raise InputError(f"'{path}' does not exist", where=where, advice="name a tarball or a checkout of the source")
    if not tarfile.is_tarfile(path):
        raise InputError(f"'{path}' is not a tarball", where=where, advice="name a tarball or a checkout of the source")
    _, sha256 = hash_file(path)
    return Source(f"sha256:{sha256}", path.name, "unknown", lambda target: _untar(path, inside, target))


def _download(source: Pinned, cache: Path, voice: Voice) -> Path:
    folder = cache / "sources"
    kept = folder / f"{source.sha256}.tar.gz"
    if kept.is_file() and hash_file(kept)[1] == source.sha256:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    voice.say(f"downloading {source.package} {source.version} with pip, once")
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        _pip(source, Path(partial))
        archives = [path for path in Path(partial).iterdir() if path.name.endswith((".tar.gz", ".zip", ".whl"))]
        if len(archives) != 1 or hash_file(archives[0])[1] != source.sha256:
            raise RigError(
                f"what pip downloaded for {source.package} {source.version} does not have the pinned SHA-256",
                advice=f"expected {source.sha256}; is the package index that pip uses in order?",
            )
        archives[0].replace(kept)
    return kept


def _pip(source: Pinned, into: Path) -> None:
    """pip, so that the user's own settings (index, proxy, certificates) serve. It refuses a wrong hash by itself."""
    wanted = into / "wanted.txt"
    wanted.write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n", encoding="ascii")
    argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps"]
    argv += ["--no-binary", source.package, "--require-hashes", "--requirement", str(wanted), "--dest", str(into)]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DOWNLOAD_S
        )
    except subprocess.TimeoutExpired:
        raise RigError(
            f"pip did not download {source.package} within {_DOWNLOAD_S:g} s", advice="try again", transient=True
        ) from None
    if done.returncode == 0:
        return
    said = f"{done.stdout}\n{done.stderr}"
    if "DO NOT MATCH THE HASHES" in said:
        raise RigError(
            f"{source.package} {source.version} of the package index does not have the pinned SHA-256",
            advice="do not use that index; or name a source of yours with --source",
        )
    faults = [line.strip() for line in said.splitlines() if line.startswith("ERROR:")] or ["no message"]
    raise RigError(
        f"pip could not download {source.package} {source.version}: {faults[0].removeprefix('ERROR: ')[:200]}",
        advice="is the package index reachable? A source that you have can be named with --source",
        transient=True,
    )


def _untar(archive: Path, inside: str, target: Path) -> None:
    """The members below `inside` (in whatever top folder), else below the uppermost folder that has the mark."""
    try:
        with tarfile.open(archive, "r:*") as tar:
            root = _root(tar, inside, archive)
            for member in tar.getmembers():
                name = member.name.removeprefix("./")
                if root and not name.startswith(root + "/"):
                    continue
                inner = name[len(root) + 1 :] if root else name
                if inner and inner != "." and PurePosixPath(inner).parts[0] != ".git":
                    _place(tar, member, inner, target, archive)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise InputError(f"the archive cannot be unpacked: {error}", where=str(archive)) from None


def _root(tar: tarfile.TarFile, inside: str, archive: Path) -> str:
    marks = [name for member in tar.getmembers() if (name := member.name.removeprefix("./")).endswith(MARK)]
    folders = [str(PurePosixPath(name).parent) for name in marks if PurePosixPath(name).name == MARK]
    if not folders:
        raise InputError(f"there is no {MARK} in it", where=str(archive), advice="name an archive of the source")
    for folder in folders:
        if folder == inside or PurePosixPath(folder).parts[1:] == PurePosixPath(inside).parts:
            return folder
    highest = min(folders, key=lambda folder: len(PurePosixPath(folder).parts))
    return "" if highest == "." else highest


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, target: Path, archive: Path) -> None:
    """One member, by hand: only folders, files and links that stay inside, none through a link."""
    path = target / name
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        raise InputError(f"it has a member that leads out of it: {name[:80]!r}", where=str(archive))
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(target)):
        raise InputError(f"it has a member that leads out of it: {name[:80]!r}", where=str(archive))
    if member.issym():
        if os.path.isabs(member.linkname) or not _stays(name, member.linkname):
            raise InputError(f"it has a link that leads out of it: {name[:80]!r}", where=str(archive))
        path.symlink_to(member.linkname)
    elif member.isreg():
        stream = tar.extractfile(member)
        assert stream is not None
        with stream, path.open("xb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _stays(name: str, link: str) -> bool:
    return not os.path.normpath(os.path.join(os.path.dirname(name), link)).startswith("..")


def _tree(folder: Path, where: str) -> Source:
    if not (folder / MARK).is_file():
        raise InputError(f"there is no {MARK} in it", where=str(folder), advice="name the top folder of the source")
    checkout = (folder / ".git").exists()
    names = sorted(_of_git(folder, where) if checkout else _walk(folder))
    digest = hashlib.sha256()
    for name in names:
        path = folder / name
        kind, content = ("link", os.readlink(path)) if path.is_symlink() else _file(path, where)
        digest.update(f"{name}\0{kind}\0{content}\n".encode("utf-8", "surrogateescape"))
    commit = _git(folder, where, "rev-parse", "HEAD").strip() if checkout else "unknown"

    def unpack(target: Path) -> None:
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / name, target / name, follow_symlinks=False)

    return Source(f"tree:{digest.hexdigest()}", str(folder), commit, unpack)


def _file(path: Path, where: str) -> tuple[str, str]:
    try:
        return ("program" if os.access(path, os.X_OK) else "file"), hash_file(path)[1]
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}", where=where) from None


def _walk(folder: Path) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        top = Path(here) == folder
        folders[:] = [name for name in folders if not (top and re.match(r"build|\.git$", name))]
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        yield from (os.path.relpath(os.path.join(here, name), folder) for name in [*files, *links])


def _of_git(folder: Path, where: str) -> list[str]:
    listed = _git(folder, where, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    # A file that was deleted but not committed is listed, and a submodule is a folder.
    return [name for name in listed if name and ((folder / name).is_file() or (folder / name).is_symlink())]


def _git(folder: Path, where: str, *words: str) -> str:
    argv = ["git", "-c", f"safe.directory={folder}", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            argv, env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="surrogateescape",
        )  # fmt: skip
    except FileNotFoundError:
        raise RigError(
            f"'{folder}' is a git checkout and git is not installed",
            where=where,
            advice="install git",
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"git cannot read '{folder}': {last[:200]}", where=where)
    return done.stdout
