"""advise: would the expert cache pay for a model on a machine? Predicted from a router trace."""

from __future__ import annotations

import re
from pathlib import Path

from invoke import Context

from boardbench.errors import BenchError, ExitCode, InputError
from tasks._verb import emit, note, verb

_SIZE = re.compile(r"^(?P<number>\d+(\.\d+)?) ?(?P<unit>[KMGT]i?B?|B)?$", re.IGNORECASE)
_POWERS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_LARGEST = 1 << 50


def size_bytes(text: str, option: str) -> int:
    """`2GiB`, `512M`, `512` (MiB) -> bytes, by powers of 1024. `InputError` names the option."""
    match = _SIZE.match(text.strip())
    unit = (match["unit"] or "M")[0].upper() if match else ""
    value = int(float(match["number"]) * 1024 ** _POWERS[unit]) if match else 0
    if not 1 <= value <= _LARGEST:
        raise InputError(f"'{text}' is not a size", where=option, advice="for example 512 (MiB), 512MiB or 2GiB")
    return value


def _rate(text: str, option: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise InputError(f"'{text}' is not a number above 0", where=option)
    return value


@verb(
    help={
        "model": "the model, a GGUF file (of several files: any of them)",
        "trace": "router trace of this model (payloads/llama-expert-cache/README.md says how to make one)",
        "budget": "sizes of the cache, joined by commas: 512,2GiB (default: multiples of a token's working set)",
        "memory": "memory that the server may use, for example 7.4GiB",
        "board": "take the memory from this board of the inventory",
        "direct_mib_s": "the device's rate for reads around the page cache, 128 KiB, several at once",
        "fault_mib_s": "the rate at which a mapped file is faulted in",
        "stock_mib_token": "what the stock server was measured to read for a decoded token on these prompts",
        "compute_ms_token": "time of a decoded token that reads nothing",
        "used": "experts a token uses, if not as many as the file says",
        "save_trace": "also write the trace here: JSON lines if the name ends in .jsonl, else binary",
    },
)
def advise(
    c: Context,
    model: str = "",
    trace: str = "",
    budget: str = "",
    memory: str = "",
    board: str = "",
    inventory: str = "",
    direct_mib_s: str = "",
    fault_mib_s: str = "",
    stock_mib_token: str = "",
    compute_ms_token: str = "",
    used: str = "",
    save_trace: str = "",
    json: bool = False,
) -> int:
    """Use the expert cache for this model here, or not: misses at every budget, simulated from a router trace."""
    from boardbench.moe.advice import Machine, simulate
    from boardbench.moe.expert_layout import read_model
    from boardbench.moe.trace_file import read_trace, write_trace
    from boardbench.moe.verdict import best, judge
    from boardbench.report.advice_text import advice_document, print_advice

    for option, given in (("--model", model), ("--trace", trace)):
        if not given:
            raise InputError(f"no {option[2:]} given", where=option, advice="./inv advise --model M.gguf --trace T")
    if memory and board:
        raise InputError("give the memory or the board, not both", where="--memory")
    if used and not used.isdecimal():
        raise InputError(f"'{used}' is not a whole number", where="--used")
    budgets = [size_bytes(part, "--budget") for part in budget.split(",")] if budget else []
    mib = float(1 << 20)
    direct, fault = _rate(direct_mib_s, "--direct-mib-s"), _rate(fault_mib_s, "--fault-mib-s")
    stock, compute = _rate(stock_mib_token, "--stock-mib-token"), _rate(compute_ms_token, "--compute-ms-token")
    found = read_model(Path(model), int(used) if used else None)
    read = read_trace(Path(trace))
    memory_bytes = size_bytes(memory, "--memory") if memory else _board_memory(inventory, board) if board else None
    machine = Machine(
        memory_bytes=memory_bytes,
        direct_bytes_per_s=None if direct is None else direct * mib,
        fault_bytes_per_s=None if fault is None else fault * mib,
        stock_read_bytes_per_token=None if stock is None else stock * mib,
        compute_s_per_token=None if compute is None else compute / 1e3,
    )
    simulation = simulate(found, read, budgets, machine, trace)
    judged = judge(found, simulation, machine)
    if save_trace:
        write_trace(read, Path(save_trace))
        note(f"trace: {save_trace}")
    if json:
        emit(advice_document(found, read, simulation, machine, judged))
    else:
        print_advice(found, read, simulation, machine, judged)
    return ExitCode.OK if best(judged).verdict != "do not use" else ExitCode.OUTCOME


def _board_memory(inventory: str, name: str) -> int:
    from boardbench.board import Door
    from tasks._boards import open_rig

    rig = open_rig(inventory, name)
    if len(rig.boards) != 1:
        raise InputError(f"'{name}' names {len(rig.boards)} boards", where="--board", advice="name one")
    with Door.open(rig.boards[0], rig.inventory.known_hosts) as door:
        facts = door.call("facts", {"paths": ["/"]}, deadline_s=30.0)["facts"]
    total = facts["memory_total_bytes"] if isinstance(facts, dict) else None
    if isinstance(total, bool) or not isinstance(total, int):
        raise BenchError("the board does not say how much memory it has", where=name, advice="give --memory")
    return total


@verb(help={"source": "another llama.cpp: tarball, folder or checkout (default: the one that the payload pins)"})
def tracer(c: Context, source: str = "", json: bool = False) -> int:
    """Build the library that makes a stock llama-server trace its router, and print where it is and how to use it."""
    from boardbench.builds.programs import PINNED
    from boardbench.builds.tracer import VARIABLE, tracer_here
    from boardbench.builds.voice import Voice
    from boardbench.locations import project_dir
    from boardbench.payload import load_payload

    payload = load_payload(project_dir() / "payloads" / "llama-expert-cache")
    library = tracer_here(payload, given=source or PINNED, voice=Voice(note))
    if json:
        emit({"library": str(library), "variable": VARIABLE})
    else:
        print(f"LD_PRELOAD={library} {VARIABLE}=router.trace llama-server ...")
    return ExitCode.OK


VERBS = (advise, tracer)
