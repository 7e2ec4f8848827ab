"""Clocks of a run, and the class of Python functions by where the time of their calls goes."""

from __future__ import annotations

import hashlib
import sys
import threading
import time

import pytest

from xttsbench.pipeline import clocks
from xttsbench.pipeline.clocks import Clock, Shares, Timed, least_contended, measure_shares, uncontended_s

LARGE = bytes(16_000_000)


def pure_python(n: int = 250_000) -> int:
    return sum(i * i for i in range(n))


def digest() -> bytes:
    return hashlib.sha256(LARGE).digest()


@pytest.mark.measured
@pytest.mark.parametrize(
    ("function", "expected"), [(lambda: time.sleep(0.01), "blocks"), (pure_python, "holds"), (digest, "releases")]
)
def test_known_functions_land_in_their_class_and_never_in_another(function, expected):
    found = [measure_shares(function, [()]) for _ in range(5)]
    classes = [shares.majority() for shares in found if shares]
    assert set(classes) <= {expected, "unknown"}, found
    assert classes.count(expected) >= 3, found  # one that a neighbour disturbed may have no majority


@pytest.mark.measured
def test_a_caller_that_waits_for_its_own_computing_threads_waits_less_than_one_that_sleeps():
    def helped():
        thread = threading.Thread(target=digest)
        thread.start()
        thread.join()

    assert measure_shares(helped, [()]).blocks < measure_shares(lambda: time.sleep(0.01), [()]).blocks - 0.1


def test_even_halves_have_no_majority():
    assert Shares(blocks=0.5, holds=0.5, releases=0.0).majority() == "unknown"
    assert Shares(blocks=0.0, holds=0.35, releases=0.65).majority() == "releases"


def test_no_more_calls_than_allowed_and_none_begun_after_the_limit():
    seen = []
    measure_shares(lambda n: seen.append(n) or time.sleep(0.002), [(1,), (2,), (3,)], calls=5)
    assert seen == [1, 2, 3, 1, 2]
    seen.clear()
    measure_shares(lambda n: seen.append(n) or time.sleep(0.05), [(1,)], calls=50, max_s=0.01)
    assert seen == [1]


def test_too_little_evidence_is_no_answer():
    assert measure_shares(lambda: None, [()]) is None
    assert measure_shares(pure_python, []) is None
    assert measure_shares(pure_python, [()], calls=0) is None


def test_switch_interval_and_threads_are_put_back_after_an_error():
    interval, threads = sys.getswitchinterval(), threading.active_count()
    with pytest.raises(ZeroDivisionError):
        measure_shares(lambda: 1 / 0, [()])
    assert (sys.getswitchinterval(), threading.active_count()) == (interval, threads)


def test_a_sleep_is_neither_processor_time_nor_queue_time():
    before = Clock.of_thread()
    time.sleep(0.05)
    spent = Clock.of_thread() - before
    assert spent.wall_s >= 0.05
    assert spent.active_s < 0.5 * spent.wall_s


def test_an_unstarted_thread_has_no_clock():
    with pytest.raises(RuntimeError, match="not been started"):
        Clock.of_thread(threading.Thread())


def test_queueing_counts_only_where_computing_fills_the_time():
    assert uncontended_s(2.0, 1.0, 1.0) == pytest.approx(1.0)
    assert uncontended_s(10.0, 1.0, 9.0) == pytest.approx(1.0)  # nine others had the processor in turn
    assert uncontended_s(2.0, 1.9, 0.1) == pytest.approx(1.9)
    assert uncontended_s(2.0, 0.2, 0.5) == 2.0  # it waits; other threads queue
    assert uncontended_s(2.0, 4.0, 3.0) == 2.0  # several threads compute at once
    assert uncontended_s(0.0, 0.0, 1.0) == 0.0


def test_disturbed_windows_are_left_out():
    calm, other, disturbed = Timed(1, 1.0, 1.0, 0.0), Timed(1, 1.2, 1.2, 0.01), Timed(1, 3.0, 1.0, 2.0)
    assert set(least_contended([calm, disturbed, other, calm])) == {calm, other}
    assert least_contended([disturbed, disturbed]) == [disturbed]


def test_windows_of_unlike_elements_are_all_kept_since_a_share_of_queueing_favours_the_long():
    short, long = Timed(1, 1.0, 0.1, 0.3), Timed(1, 60.0, 0.1, 0.3)
    assert least_contended([short, short, short, long]) == [short, short, short, long]


@pytest.mark.parametrize(("cpu_s", "kind"), [(0.3, "unknown"), (0.01, "blocks")])
def test_a_napper_that_keeps_the_lock_in_the_run_queue_makes_no_wait(monkeypatch, cpu_s: float, kind: str) -> None:
    class Napper:
        def __enter__(self):
            self.times = iter((Clock(0.0, 0.0), Clock(1.0, 0.01, 0.5, 0.3)))
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self) -> Clock:
            return next(self.times)

    own = iter((Clock(0.0, 0.0), Clock(1.0, cpu_s, 0.05)))
    process = iter((0.0, cpu_s + 0.01))
    monkeypatch.setattr(clocks, "_Napper", Napper)
    monkeypatch.setattr(clocks.Clock, "of_thread", lambda: next(own))
    monkeypatch.setattr(clocks.time, "process_time", lambda: next(process))
    shares = measure_shares(lambda: None, [()], calls=1)
    assert shares is not None
    assert shares.majority() == kind
