"""Which calls are in progress, and when the floor is wanted: against a plain model, for any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from .floor_parts import calls

Event = calls.Event


def test_nested_calls_are_one_until_the_outermost_returns() -> None:
    state = calls.Calls(hold_s=1.0)
    for depth, at in ((1, 0.0), (2, 0.1), (3, 0.2), (2, 0.3), (1, 0.4)):
        state.take("lib", Event(7, 7, depth, at))
        assert state.wanted(at + 100)
    state.take("lib", Event(7, 7, 0, 0.5))
    assert state.wanted(1.49)
    assert not state.wanted(1.5)


def test_nothing_is_wanted_before_the_first_call() -> None:
    assert not calls.Calls(hold_s=1.0).wanted(0.0)


def test_calls_of_threads_processes_and_libraries_overlap() -> None:
    state = calls.Calls(hold_s=1.0)
    state.take("a", Event(1, 1, 1, 0.0))
    state.take("a", Event(1, 2, 1, 0.1))
    state.take("b", Event(3, 3, 1, 0.2))
    assert state.pids() == [1, 3]
    state.take("a", Event(1, 1, 0, 5.0))
    state.take("a", Event(1, 2, 0, 6.0))
    assert state.wanted(100.0)
    state.take("b", Event(3, 3, 0, 7.0))
    assert state.wanted(7.9)
    assert not state.wanted(8.0)


def test_a_process_that_dies_in_a_call_ends_it() -> None:
    state = calls.Calls(hold_s=1.0)
    state.take("a", Event(1, 1, 2, 0.0))
    state.end_thread(1, 1, 3.0)
    assert state.wanted(3.9)
    assert not state.wanted(4.0)


def test_a_library_that_is_no_longer_watched_ends_its_calls() -> None:
    state = calls.Calls(hold_s=0.0)
    state.take("a", Event(1, 1, 1, 0.0))
    state.take("b", Event(2, 2, 1, 0.0))
    state.end_source("a", 1.0)
    assert state.pids() == [2]


def test_a_lost_return_is_healed_by_the_next_call_of_the_thread() -> None:
    state = calls.Calls(hold_s=0.0)
    state.take("a", Event(1, 1, 1, 0.0))
    # done 1 -> 0 was lost
    state.take("a", Event(1, 1, 1, 1.0))
    state.take("a", Event(1, 1, 0, 2.0))
    assert not state.wanted(2.0)


@pytest.mark.parametrize("hold_s", [0.0, 2.0])
def test_idle_threads_are_forgotten_and_the_hold_is_not(hold_s: float) -> None:
    state = calls.Calls(hold_s)
    for tid in range(100):
        state.take("a", Event(1, tid, 0, 1.0))
    state.take("a", Event(1, 200, 1, 1.0))
    state.forget_old(1000.0)
    assert state.open_threads() == [(1, 200)]
    assert len(state._threads) == 1


# A step: which thread, how deep it then is (None: it dies), how much later than the step before.
_STEP = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(1, 2),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([0.001, 0.5, 0.999, 1.5]),
)


@settings_of(deadline=None)
@given(st.lists(_STEP, max_size=30), st.randoms())
def test_any_history_in_any_order_of_arrival_ends_as_the_model_says(steps: list[tuple], random) -> None:  # type: ignore[no-untyped-def, type-arg]
    state = calls.Calls(hold_s=1.0)
    depths: dict[tuple[str, int, int], int] = {}
    ended, now, pending = None, 0.0, []
    for source, pid, tid, depth, later in steps:
        now += later
        if depth is None:
            # Deaths are noticed by looking, after what was printed before them.
            for event in pending:
                state.take(*event)
            pending = []
            state.end_thread(pid, tid, now)
            for key in [key for key in depths if key[1:] == (pid, tid)]:
                ended = now if depths.pop(key) > 0 else ended
            continue
        pending.append((source, Event(pid, tid, depth, now)))
        depths[(source, pid, tid)] = depth
        if depth == 0:
            ended = now
    random.shuffle(pending)
    for event in pending:
        state.take(*event)
    in_call = any(depths.values())
    assert state.pids() == sorted({pid for (_, pid, _), depth in depths.items() if depth})
    for look in (now, now + 0.5, now + 0.9999, now + 1.0, now + 50):
        assert state.wanted(look) == (in_call or (ended is not None and look < ended + 1.0))
