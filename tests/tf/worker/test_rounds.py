"""Rounds of the main trial: what is alone is alone, and starts as it would in the middle of a long training."""

from __future__ import annotations

import multiprocessing
import time

from xttsbench.worker.rounds import stands_still


def _spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_an_input_in_a_process_of_its_own_stands_still_once_that_does():
    assert stands_still(1.0, element_s=0.01)
    loader = multiprocessing.get_context("fork").Process(target=_spin, args=(1.0,))
    began = time.perf_counter()
    loader.start()
    try:
        assert not stands_still(0.3, element_s=0.01), "the child is at work"
        assert stands_still(5.0, element_s=0.01)
        assert time.perf_counter() - began > 0.9
    finally:
        loader.join()


def test_a_pipeline_that_sleeps_within_an_element_is_looked_at_for_as_long_as_that_takes():
    loader = multiprocessing.get_context("fork").Process(target=_sleep_and_spin, args=(4,))
    loader.start()
    try:
        time.sleep(0.05)
        assert not stands_still(0.5, element_s=0.4)
    finally:
        loader.join()


def _sleep_and_spin(times):
    for _ in range(times):
        time.sleep(0.2)
        _spin(0.2)
