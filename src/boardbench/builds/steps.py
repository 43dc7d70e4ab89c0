"""Configure, compile, and gather what a program needs to run elsewhere.

The controller imports this module; a board that builds for itself runs it as a program. So: the standard library only,
Python >= 3.8, and nothing of ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Libraries of the compiler. A board may have none of them, or older ones: they travel with the program.
COMPILER_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1")
_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]")
_GLIBC = re.compile(r"\bGLIBC_([0-9]+(?:\.[0-9]+)+)\b")
_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] ")
_ERROR = re.compile(r"(?:\berror\b|Error\b|FAILED|undefined reference|No space left|Killed signal)", re.IGNORECASE)
NICE = ("nice", "-n", "10")


class BuildFailed(Exception):
    """A step failed: what the tool said first, and where its whole log is."""

    def __init__(self, what: str, log: str) -> None:
        super().__init__(what)
        self.what = what
        self.log = log


def environment(work: str, ccache: str) -> dict[str, str]:
    """What all tools run with. The compiler cache knows a file again in another folder (paths count from `work`)."""
    return dict(
        os.environ,
        LC_ALL="C",
        NINJA_STATUS="[%f/%t] ",
        CCACHE_DIR=ccache,
        CCACHE_BASEDIR=work,
        CCACHE_NOHASHDIR="1",
        CCACHE_COMPILERCHECK="content",
        CCACHE_MAXSIZE="2G",
    )


def build(job: dict[str, Any], work: str, log: str, step: Callable[[int, int], None]) -> None:
    """`work/source` is configured and its targets are built into `work/build`; raises BuildFailed.

    `job`: `cmake` (options by name), `targets`, `jobs` (at once), `ccache` (folder, or empty for none).
    """
    env = environment(work, job["ccache"])
    # What __FILE__ says must not depend on where it is built: the same source gives the same bytes.
    flags = {f"CMAKE_{language}_FLAGS": f"-ffile-prefix-map={work}/=" for language in ("C", "CXX")}
    options = [f"-D{name}={value}" for name, value in sorted(dict(job["cmake"], **flags).items())]
    if job["ccache"]:
        os.makedirs(job["ccache"], exist_ok=True)
        options += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in job["languages"]]
    source, target = os.path.join(work, "source"), os.path.join(work, "build")
    _run(["cmake", "-G", "Ninja", "-S", source, "-B", target, *options], env, log, lambda _: None)

    def heard(line: str) -> None:
        found = _PROGRESS.match(line)
        if found:
            step(int(found.group(1)), int(found.group(2)))

    argv = [*NICE, "ninja", "-C", target, "-j", str(job["jobs"]), *job["targets"]]
    _run(argv, env, log, heard)


def progress_of(log: Path) -> tuple[int, int] | None:
    """How many of how many pieces a log of `build` says are done; None when it does not say (yet)."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        found = _PROGRESS.match(line)
        if found:
            return int(found.group(1)), int(found.group(2))
    return None


def _run(argv: Sequence[str], env: dict[str, str], log: str, heard: Callable[[str], None]) -> None:
    """Runs a tool in a session of its own, so that an interrupt ends all that it started."""
    with open(log, "a", encoding="utf-8", errors="replace") as kept:
        kept.write(f"$ {' '.join(argv)}\n")
        kept.flush()
        try:
            process = subprocess.Popen(
                list(argv), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                universal_newlines=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BuildFailed(f"{argv[0]} cannot be started: {error.strerror}", log) from None
        assert process.stdout is not None
        said: list[str] = []
        try:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                if _ERROR.search(line) and len(said) < 20:
                    said.append(line.strip())
                heard(line)
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code != 0:
        raise BuildFailed(_first_fault(said, argv[0], code), log)


def _end(process: Any) -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        process.wait()


def _first_fault(said: list[str], tool: str, code: int) -> str:
    """The line that tells most: a full disk, a killed compiler, the first error; else only the exit code."""
    for word in ("No space left", "Killed signal", "error:", "undefined reference"):
        for line in said:
            if word in line:
                return line[:300]
    return said[0][:300] if said else f"{tool} ended with exit code {code}"


def gather(build_folder: str, targets: Sequence[str], cxx: str, readelf: str, into: str) -> dict[str, Any]:
    """Puts the targets and every library that they need, by its own name, flat into `into`.

    What the build did not make and the compiler does not bring (libc, CUDA) is the board's own. Returns
    `{"system": [names], "glibc": "2.34"}`: what the board must have.
    """
    made = _made(build_folder)
    os.makedirs(into)
    # A library is a target too, and its file has another name than that.
    waiting = [name if name in made else f"lib{name}.so" for name in targets]
    wanted = set(waiting)
    taken: set[str] = set()
    system: set[str] = set()
    versions: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in taken or name in system:
            continue
        path = made.get(name) or _of_compiler(name, cxx)
        if path is None:
            if name in wanted:
                raise BuildFailed(f"the build made no {name}", "")
            system.add(name)
            continue
        taken.add(name)
        here = os.path.join(into, name)
        shutil.copyfile(path, here)
        os.chmod(here, 0o755 if name in targets else 0o644)
        waiting += _NEEDED.findall(_said([readelf, "-dW", here]))
        versions.update(_GLIBC.findall(_said([readelf, "-VW", here])))
    return {"system": sorted(system), "glibc": max(versions, key=_numbers) if versions else None}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _made(build_folder: str) -> dict[str, str]:
    """Programs and libraries of the build by name: in `bin`, or (for single libraries) anywhere in it."""
    found = {}
    for folder, folders, files in os.walk(build_folder):
        folders[:] = [name for name in folders if name != "CMakeFiles"]
        for name in files:
            path = os.path.join(folder, name)
            if name not in found and (os.access(path, os.X_OK) or ".so" in name):
                found[name] = path
    return found


def _of_compiler(name: str, cxx: str) -> str | None:
    if name not in COMPILER_LIBRARIES:
        return None
    path = _said([cxx, "-print-file-name=" + name]).strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def _said(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            list(argv), env=dict(os.environ, LC_ALL="C"), stdin=subprocess.DEVNULL, capture_output=True,
            text=True,
        )  # fmt: skip
    except OSError as error:
        raise BuildFailed(f"{argv[0]} cannot be started: {error.strerror}", "") from None
    if done.returncode != 0:
        raise BuildFailed(f"{argv[0]}: {done.stderr.strip()[:200]}", "")
    return done.stdout


def compiler_version(cxx: str) -> str:
    """What names a compiler: its version line and the machine that it makes code for."""
    return f"{_said([cxx, '--version']).splitlines()[0]} {_said([cxx, '-dumpmachine']).strip()}"


def _on_board(folder: str) -> None:
    """The board's part: `job.json` in `folder` says what to do; progress goes to stdout, the result to `result`."""
    with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    lacking = [path for path in job["needs"] if not os.path.exists(path)]
    if lacking:
        raise BuildFailed(f"this board has no {lacking[0]}", "")
    versions = [compiler_version(cxx) for cxx in job["compilers"]]
    work, out = job["work"], os.getcwd()
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, "source"))
    last = [0.0]

    def step(done: int, total: int) -> None:
        if time.monotonic() - last[0] >= 2.0 or done == total:
            last[0] = time.monotonic()
            print(f"[{done}/{total}]", flush=True)

    try:
        shutil.unpack_archive(os.path.join(folder, "source.tar.gz"), os.path.join(work, "source"), "gztar")
        build(job, work, os.path.join(out, "build.log"), step)
        built = os.path.join(work, "build")
        needs = gather(built, job["targets"], job["compilers"][0], "readelf", os.path.join(out, "files"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for name, value in (("compilers.json", versions), ("needs.json", needs)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            json.dump(value, file)


if __name__ == "__main__":
    try:
        _on_board(sys.argv[1])
    except BuildFailed as failed:
        sys.exit(failed.what)
