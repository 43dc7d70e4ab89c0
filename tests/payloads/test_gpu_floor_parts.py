"""Parts of the GPU floor service that need no root: which processes count, symbols of files, the tracer's words."""

from __future__ import annotations

import ast
import ctypes
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from . import floor_rig
from .floor_parts import calls, counting, elf, faults, node, probes, settings
from .sensors import ROOT

FLAGS = settings.FLAGS
COMPILER = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")


def _why(*argv: str, environment: dict[str, str] | None = None, override: bool = True) -> str | None:
    found = counting.why_it_counts(["llama-server", *argv], environment or {}, FLAGS, override)
    assert found is None or isinstance(found, str)
    return found


@pytest.mark.parametrize(
    "argv",
    [
        ["--cpu-moe"],
        ["-m", "x.gguf", "-cmoe"],
        ["--n-cpu-moe", "12"],
        ["-ncmoe", "1"],
        ["--n-cpu-moe=3"],
        ["-ot", ".ffn_.*_exps.=CPU"],
        ["-ot", "exps=CPU"],
        ["--override-tensor", r"blk\.(1|2)\.ffn_(up|down)_exps\.weight=CPU"],
        ["-ot", "attn=CUDA0,ffn_gate_up_exps=CPU"],
        ["-ot", ".*=CPU"],
        ["-ot", "[[:alpha:]]+_exps=CPU"],
        ["-ot", "exps=CUDA0", "-ot", "down_exps=CPU"],
    ],
)
def test_a_process_with_experts_on_the_cpu_counts(argv: list[str]) -> None:
    assert _why(*argv)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["-ngl", "99"],
        ["--n-cpu-moe", "0"],
        ["--n-cpu-ffn", "8"],
        ["-ot", "attn_q=CPU"],
        ["-ot", "exps=CUDA0"],
        ["-ot", r"blk\.1\.ffn_down\.weight=CPU"],
        ["-ot"],
        ["-ot", "exps"],
        ["-p", "what does --cpu-moe do?"],
    ],
)
def test_a_process_without_does_not(argv: list[str]) -> None:
    assert _why(*argv) is None


def test_the_environment_counts_too_since_llama_reads_it() -> None:
    assert _why(environment={"LLAMA_ARG_CPU_MOE": "1"}) == "LLAMA_ARG_CPU_MOE"
    assert _why(environment={"LLAMA_ARG_CPU_MOE": "0"}) is None
    assert _why(environment={"LLAMA_ARG_N_CPU_MOE": "4"}) == "LLAMA_ARG_N_CPU_MOE=4"
    assert _why(environment={"LLAMA_ARG_N_CPU_MOE": "0"}) is None
    assert _why(environment={"LLAMA_ARG_OVERRIDE_TENSOR": "exps=CPU"})


@pytest.mark.parametrize("pattern", ["(a+)+$", "(([a-z.0-9_])*x*)*!", ".*.*.*.*.*.*.*!", "x" * 5000])
def test_a_pattern_that_could_take_for_ever_is_not_tried(pattern: str) -> None:
    began = time.process_time()
    assert _why("-ot", f"{pattern}=CPU") is None
    assert _why("-ot", f"{pattern}exps=CPU")
    assert time.process_time() - began < 5


def test_override_tensor_can_be_left_out_by_the_settings() -> None:
    assert _why("-ot", "exps=CPU", override=False) is None


def test_a_name_that_only_holds_a_flag_is_no_flag() -> None:
    assert counting.why_it_counts(["--cpu-moe"], {}, FLAGS, True) is None


def test_every_module_can_be_read_by_python_3_8() -> None:
    modules = sorted((ROOT / "payloads/gpu-floor").rglob("*.py"))
    assert len(modules) > 10
    for module in modules:
        tree = ast.parse(module.read_text(), feature_version=(3, 8))
        # Annotations may be newer than that when nothing evaluates them.
        lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        assert lazy or not any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)), module


# --- symbols ----------------------------------------------------------------------------------------------------------


def test_symbols_of_a_library_of_this_machine_are_those_that_its_loader_finds() -> None:
    path = Path(f"/proc/{'self'}/maps").read_text()
    libc = next(line.split()[-1] for line in path.splitlines() if "/libc.so" in line or "/libc-" in line)
    names = ["malloc", "printf", "llama_decode", "no_such_function"]
    loaded = ctypes.CDLL(libc)
    assert elf.functions(libc, names) == {name for name in names if hasattr(loaded, name)} >= {"malloc", "printf"}


@COMPILER
def test_a_missing_entry_point_is_seen_and_a_called_one_is_not_a_defined_one(tmp_path: Path) -> None:
    library = floor_rig.build(tmp_path, "-DOLD")
    assert elf.functions(str(library), probes.ENTRY_POINTS) == {"llama_decode", "llama_synchronize"}
    source = "int llama_decode(int); int other(void) { return llama_decode(1); }"
    caller = tmp_path / "caller.so"
    argv = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-o", str(caller)]
    subprocess.run(argv, input=source, text=True, check=True)
    assert elf.functions(str(caller), [*probes.ENTRY_POINTS, "other"]) == {"other"}


@COMPILER
def test_a_stripped_library_still_shows_what_it_exports(tmp_path: Path) -> None:
    library = floor_rig.build(tmp_path, "-s")
    assert elf.functions(str(library), probes.ENTRY_POINTS) == set(probes.ENTRY_POINTS)


def test_what_is_no_elf_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library\n")
    with pytest.raises(elf.ElfError, match="it is no ELF file"):
        elf.functions(str(tmp_path / "text"), ["f"])
    (tmp_path / "cut").write_bytes(Path(sys.executable).resolve().read_bytes()[:100])
    with pytest.raises(elf.ElfError, match="it is cut off"):
        elf.functions(str(tmp_path / "cut"), ["f"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small library."""
    return floor_rig.build(tmp_path_factory.mktemp("whole"), "-s")


@COMPILER
@settings_of(max_examples=60, deadline=None)
@given(changes=st.lists(st.tuples(st.booleans(), st.integers(0, 4095), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_library_is_an_error_and_never_a_crash(changes: list[tuple[bool, int, int]], whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    for in_header, at, value in changes:
        # The header is at the front, the tables of sections at the end.
        content[4 + at % 60 if in_header else len(content) - 1 - at] = value
    path = whole.with_name("damaged.so")
    path.write_bytes(content)
    said = ""
    try:
        elf.functions(str(path), probes.ENTRY_POINTS)
    except elf.ElfError as error:
        said = str(error)
    assert not said or said.startswith(("it ", "its ", "a table"))


# --- the tracer's program and words -----------------------------------------------------------------------------------


def test_the_program_probes_entry_and_return_of_every_function() -> None:
    text = probes.program("/opt/a b/libllama.so", ["llama_process", "llama_decode"], exits=True)
    for symbol in ("llama_process", "llama_decode"):
        assert f'uprobe:"/opt/a b/libllama.so":"{symbol}"' in text
        assert f'uretprobe:"/opt/a b/libllama.so":"{symbol}"' in text
    assert "sched_process_exit" in text
    assert "sched_process_exit" not in probes.program("/x.so", ["llama_decode"], exits=False)


@pytest.mark.parametrize("path", ['/a".so', "/a*.so", "/a\n.so", "/[a].so", "/a\\.so"])
def test_a_path_that_bpftrace_would_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(faults.BoardError, match="cannot be given to bpftrace"):
        probes.program(path, ["llama_decode"], exits=True)


def test_a_library_without_entry_points_is_no_silence() -> None:
    with pytest.raises(faults.BoardError, match="has none of llama_process, llama_decode, llama_synchronize"):
        probes.program("/x.so", [], exits=True)


def test_lines_become_events() -> None:
    assert probes.parse_line("call 12 13 2 1500000000") == calls.Event(12, 13, 2, 1.5)
    assert probes.parse_line("done 12 13 1 1500000000") == calls.Event(12, 13, 1, 1.5)
    assert probes.parse_line("gone 12 13 0 1500000000") == calls.Event(12, 13, 0, 1.5)
    assert probes.parse_line("tick 99") == probes.Tick()
    assert probes.parse_line("Lost 7 events") == probes.Lost(7)
    for line in ("", "@depth[3]: 0", "Attaching 4 probes...", "call 1 2 3", "call -1 2 3 4", "call 1 2 3 4 5"):
        assert probes.parse_line(line) is None


@settings_of(deadline=None)
@given(st.text())
def test_any_line_is_read_without_a_crash(line: str) -> None:
    probes.parse_line(line)


def test_the_reason_of_a_failure_is_what_bpftrace_said_last_and_what_to_do() -> None:
    noise = "ERROR: Unknown error -1: couldn't set RLIMIT_MEMLOCK for bpftrace\n"
    said = noise + "ERROR: Error creating map: '@depth': Operation not permitted\n"
    assert probes.reason(said).endswith("; the kernel or a sandbox forbids BPF here")
    assert probes.reason(noise) == "it said nothing"


# --- the node ---------------------------------------------------------------------------------------------------------


def _device(root: Path, name: str, of_name: str = "", compatible: str = "", files: bool = True) -> Path:
    folder = root / "class/devfreq" / name
    (folder / "device/of_node").mkdir(parents=True)
    if of_name:
        (folder / "device/of_node/name").write_bytes(of_name.encode() + b"\0")
    if compatible:
        (folder / "device/of_node/compatible").write_bytes(compatible.replace(" ", "\0").encode() + b"\0")
    for file in ("min_freq", "max_freq", "available_frequencies") if files else ():
        (folder / file).write_text("1\n")
    return folder


@pytest.mark.parametrize(
    ("name", "of_name", "compatible"),
    [
        ("17000000.gpu", "gpu", "nvidia,ga10b"),
        ("17000000.ga10b", "ga10b", ""),
        ("whatever", "", "nvidia,tegra234-x nvidia,ga10b"),
    ],
)
def test_the_gpu_is_found_by_what_the_device_tree_calls_it(
    tmp_path: Path, name: str, of_name: str, compatible: str
) -> None:
    _device(tmp_path, "27700000.npu", "npu", "rockchip,rk3576-rknpu")
    _device(tmp_path, "dmc", "dmc")
    wanted = _device(tmp_path, name, of_name, compatible)
    assert node.find(str(tmp_path), None).path == str(wanted)


def test_no_gpu_several_gpus_and_half_a_gpu_are_said(tmp_path: Path) -> None:
    with pytest.raises(faults.BoardError, match="only after the GPU was powered"):
        node.find(str(tmp_path), None)
    _device(tmp_path, "a.gpu", "gpu", files=False)
    with pytest.raises(faults.BoardError, match="has no min_freq, max_freq, available_frequencies"):
        node.find(str(tmp_path), None)
    other = _device(tmp_path, "b.gpu", "gpu")
    with pytest.raises(faults.BoardError, match=r"several GPUs.*set GPU_FLOOR_NODE"):
        node.find(str(tmp_path), None)
    assert node.find(str(tmp_path), str(other)).path == str(other)
