"""Real compilers on a tiny project: what comes out runs elsewhere, is the same from anywhere, and is made once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boardbench.builds import builder, toolchain
from boardbench.builds.store import Built, Store
from boardbench.builds.voice import Voice
from boardbench.errors import InputError, RigError

from . import tiny

LACKING = toolchain.missing(toolchain.controller_arch())
needs_compiler = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {' '.join(LACKING)}")
CROSS = {"x86_64": "aarch64", "aarch64": "x86_64"}[toolchain.controller_arch()]
LACKING_CROSS = toolchain.missing(CROSS)


def build(folder: Path, variant: str = "stock", arch: str = "", voice: Voice | None = None) -> Built:
    return builder.ensure(tiny.wanted(folder, variant, arch), Store(folder / "cache"), voice or Voice())


def said(folder: Path) -> str:
    """What the program prints, with nothing of the environment that could help it to its libraries."""
    done = subprocess.run([str(folder / "say")], capture_output=True, text=True, env={}, check=True)
    return done.stdout


@needs_compiler
def test_a_build_has_all_it_needs_beside_it_and_runs_from_anywhere(tmp_path: Path) -> None:
    built = build(tmp_path)
    assert {file.name for file in built.files} >= {"say", "libtiny.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
    assert "other" not in {file.name for file in built.files}
    moved = shutil.copytree(built.folder, tmp_path / "moved")
    shutil.rmtree(tmp_path / "cache")
    assert said(moved).split()[0] == "stock"
    listed = subprocess.run(["ldd", str(moved / "say")], capture_output=True, text=True, check=True).stdout
    for name in ("libtiny.so.1", "libstdc++.so.6"):
        assert f"{name} => {moved}/" in listed
    assert built.facts["needs"]["glibc"]
    assert "libc.so.6" in built.facts["needs"]["system"]


@needs_compiler
def test_the_patched_build_is_another_one(tmp_path: Path) -> None:
    stock, patched = build(tmp_path), build(tmp_path, "patched")
    assert stock.key != patched.key
    assert (said(stock.folder).split()[0], said(patched.folder).split()[0]) == ("stock", "patched")
    same = {file.sha256 for file in stock.files} & {file.sha256 for file in patched.files}
    assert len(same) >= 2, "what the patch does not touch is sent to a board once"


@needs_compiler
def test_another_folder_gives_the_same_bytes_and_names_no_folder(tmp_path: Path) -> None:
    one, other = build(tmp_path / "one"), build(tmp_path / "a/longer/name")
    assert one.key == other.key
    assert [(file.name, file.sha256) for file in one.files] == [(file.name, file.sha256) for file in other.files]
    assert str(tmp_path) not in said(one.folder)


@needs_compiler
def test_the_compiler_cache_knows_the_source_again_in_another_folder(tmp_path: Path) -> None:
    build(tmp_path)
    shutil.rmtree(tmp_path / "cache/builds")
    build(tmp_path)
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache/ccache"), "LC_ALL": "C"}
    printed = subprocess.run(["ccache", "--print-stats"], env=environment, capture_output=True, text=True, check=True)
    counts = dict(line.split("\t") for line in printed.stdout.splitlines())
    hits = int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])
    assert (hits, int(counts["cache_miss"])) == (2, 2)


@needs_compiler
def test_a_build_tells_how_far_it_is_and_is_made_once(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    sentences: list[str] = []
    voice = Voice(sentences.append, lambda _, done, total: steps.append((done, total)))
    build(tmp_path, voice=voice)
    assert steps[-1][0] == steps[-1][1] > 3
    assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
    assert any("building tiny stock" in sentence for sentence in sentences)
    steps.clear()
    build(tmp_path, voice=voice)
    assert steps == []


@needs_compiler
def test_look_finds_only_what_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    assert builder.look(tiny.wanted(tmp_path), store) is None
    made = build(tmp_path)
    assert builder.look(tiny.wanted(tmp_path), store) == made
    assert builder.look(tiny.wanted(tmp_path, "patched"), store) is None


@needs_compiler
def test_every_input_makes_another_build(tmp_path: Path) -> None:
    first = tiny.wanted(tmp_path, "patched")
    compiler = "g++ 1.0"
    inputs = [first.inputs(compiler), first.inputs("g++ 2.0"), first.with_targets("other").inputs(compiler)]
    for name in ("source/src/say.cpp", "tiny/ours/name.h", "tiny/patches/0001-name.patch"):
        path = tmp_path / name
        path.write_text(path.read_text() + "\n")
        inputs.append(tiny.wanted(tmp_path, "patched").inputs(compiler))
    yml = tmp_path / "tiny/payload.yml"
    yml.write_text(yml.read_text().replace("Release", "Debug"))
    inputs.append(tiny.wanted(tmp_path, "patched").inputs(compiler))
    assert len({str(one) for one in inputs}) == len(inputs)


@needs_compiler
@pytest.mark.skipif(bool(LACKING_CROSS), reason=f"not installed: {' '.join(LACKING_CROSS)}")
def test_a_cross_build_is_for_the_other_machine(tmp_path: Path) -> None:
    built = build(tmp_path, arch=CROSS)
    assert built.key != build(tmp_path).key
    names = {file.name for file in built.files}
    assert names >= {"say", "libtiny.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
    machine = {"aarch64": b"\xb7\x00", "x86_64": b"\x3e\x00"}[CROSS]
    for file in built.files:
        assert file.path.read_bytes()[18:20] == machine, file.name


EMULATOR = shutil.which(f"qemu-{CROSS}-static")


@needs_compiler
@pytest.mark.skipif(bool(LACKING_CROSS), reason=f"not installed: {' '.join(LACKING_CROSS)}")
@pytest.mark.skipif(EMULATOR is None, reason="not installed: qemu-user-static")
def test_a_cross_build_runs_with_its_own_libraries(tmp_path: Path) -> None:
    built = build(tmp_path, "patched", arch=CROSS)
    # Only libc is the other machine's own.
    argv = [str(EMULATOR), "-L", f"/usr/{CROSS}-linux-gnu", str(built.folder / "say")]
    done = subprocess.run(argv, capture_output=True, text=True, env={}, check=True)
    assert done.stdout.split()[0] == "patched"


@needs_compiler
def test_a_compile_error_is_one_sentence_with_its_log(tmp_path: Path) -> None:
    tiny.wanted(tmp_path)
    (tmp_path / "source/src/tiny.cpp").write_text("int tiny( {\n")
    with pytest.raises(RigError) as caught:
        build(tmp_path)
    text = str(caught.value)
    assert "building tiny stock" in text
    assert "error: " in text
    assert "\n" not in text
    log = Path(caught.value.where)
    assert "ninja" in log.read_text()
    assert [path.suffix for path in (tmp_path / "cache/builds").iterdir() if path.is_dir()] == []


@needs_compiler
def test_a_patch_that_does_not_fit_is_told_before_anything_is_compiled(tmp_path: Path) -> None:
    tiny.wanted(tmp_path)
    path = tmp_path / "source/src/tiny.cpp"
    path.write_text(path.read_text().replace("std::string tiny() {", "std::string tiny(void) {"))
    steps: list[int] = []
    with pytest.raises(InputError, match=r"0001-name\.patch does not fit this source: src/tiny\.cpp: hunk 1"):
        build(tmp_path, "patched", voice=Voice(step=lambda *_: steps.append(1)))
    assert steps == []


def test_a_missing_compiler_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RigError) as caught:
        build(tmp_path)
    assert "needs binutils, ccache, cmake, g++, gcc, ninja-build on this machine" in str(caught.value)
    assert "apt-get install binutils ccache cmake" in str(caught.value)


def test_a_machine_that_the_payload_is_not_made_for_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"payload 'tiny' cannot be built for host on riscv64; .*x86_64, aarch64"):
        tiny.wanted(tmp_path, arch="riscv64")


def test_a_variant_without_its_patches_is_one_sentence(tmp_path: Path) -> None:
    tiny.wanted(tmp_path)
    (tmp_path / "tiny/patches/0001-name.patch").unlink()
    with pytest.raises(InputError, match="variant 'patched' has no patch"):
        tiny.wanted(tmp_path, "patched")
    assert tiny.wanted(tmp_path, "stock")


INTERRUPTED = """
import sys
from pathlib import Path
from boardbench.builds import builder, programs
from boardbench.builds.store import Store
from boardbench.builds.voice import Voice
from boardbench.payload import load_payload

folder = Path(sys.argv[1])
wanted = programs.wanted(load_payload(folder / "tiny"), "stock", kind="host", arch=sys.argv[2], virtual=False,
                         given=str(folder / "source"), cache=folder / "cache")
builder.ensure(wanted, Store(folder / "cache"), Voice())
"""


def working_below(folder: Path) -> list[str]:
    """Folders below this one in which a process works."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found.append(os.readlink(link))
        except OSError:
            continue  # it has ended, or is somebody else's
    return [place for place in found if place.startswith(str(folder))]


@needs_compiler
def test_an_interrupt_ends_the_compilers_and_leaves_no_half_build(tmp_path: Path) -> None:
    tiny.wanted(tmp_path)
    cmake = tmp_path / "source/CMakeLists.txt"
    mark = tmp_path / "began"
    slow = f"COMMAND ${{CMAKE_COMMAND}} -E touch {mark} COMMAND sleep 321"
    cmake.write_text(cmake.read_text() + f"add_custom_command(TARGET tiny PRE_LINK {slow})\n")
    argv = [sys.executable, "-c", INTERRUPTED, str(tmp_path), toolchain.controller_arch()]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mark.exists()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert not list((tmp_path / "cache/builds").glob("*.partial-*"))
    assert working_below(tmp_path) == []


@needs_compiler
def test_who_waits_for_another_build_sees_how_far_it_is(tmp_path: Path) -> None:
    tiny.wanted(tmp_path)
    cmake, go = tmp_path / "source/CMakeLists.txt", tmp_path / "go"
    (tmp_path / "wait.sh").write_text(f"until test -e {go}; do sleep 0.05; done\n")
    wait = f"add_custom_command(TARGET tiny PRE_LINK COMMAND sh {tmp_path}/wait.sh)\n"
    cmake.write_text(cmake.read_text() + wait)
    first = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path), toolchain.controller_arch()])
    deadline = time.monotonic() + 60
    while "[1/" not in "".join(path.read_text() for path in tmp_path.glob("cache/builds/*.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    steps: list[tuple[str, int, int]] = []

    def heard(*step: object) -> None:
        steps.append(step)  # type: ignore[arg-type]
        go.touch()

    sentences: list[str] = []
    built = build(tmp_path, voice=Voice(sentences.append, heard))
    assert first.wait(timeout=60) == 0
    assert sentences == ["somebody else is building tiny stock for " + toolchain.controller_arch() + ": waiting"]
    assert steps[0][1] >= 1
    assert built.files
