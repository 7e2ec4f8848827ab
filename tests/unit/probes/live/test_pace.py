import pytest

from xttsbench.probes.live.pace import Pace


class Machine:
    """A clock, and what the work took of a processor."""

    def __init__(self) -> None:
        self.now_s = self.spent_s = 0.0

    def pace(self, share: float, least_s: float) -> Pace:
        return Pace(share, least_s, clock=lambda: self.now_s, cost=lambda: self.spent_s)

    def run(self, pace: Pace, seconds: float, cost_s: float, tick_s: float = 0.1) -> list[float]:
        """When it was done."""
        done, end_s = [], self.now_s + seconds
        while self.now_s < end_s:
            if pace.due():
                done.append(self.now_s)
                with pace:
                    self.spent_s += cost_s
            self.now_s += tick_s
        return done


def test_cheap_work_is_done_at_each_tick_that_is_asked_for():
    machine = Machine()
    assert len(machine.run(machine.pace(0.01, 0.1), 10, 0.0001)) == pytest.approx(100, abs=1)
    assert len(machine.run(machine.pace(0.01, 1.0), 10, 0.0001)) == pytest.approx(10, abs=1)


@pytest.mark.parametrize("cost_s", [0.005, 0.02, 0.5])
def test_dear_work_takes_its_share_and_no_more(cost_s):
    machine = Machine()
    machine.run(machine.pace(0.002, 0.0), 2000, cost_s)
    assert machine.spent_s / 2000 == pytest.approx(0.002, rel=0.15)


def test_what_is_slow_once_is_put_off_by_what_was_saved_before():
    machine = Machine()
    pace = machine.pace(0.002, 0.1)
    machine.run(pace, 20, 0.0001)  # half of its share: 20 ms are saved
    machine.run(pace, 0.05, 0.015)
    assert len(machine.run(pace, 10, 0.0001)) > 90
