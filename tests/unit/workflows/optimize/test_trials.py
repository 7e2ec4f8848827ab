"""Which trials a verification runs, in which order, and when it stops: with a session that measures nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from xttsbench.evidence import Evidence
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.results import results
from xttsbench.fixes.rounds import ALONE, GUARD, LEAST_BLOCKS, ORIGINAL, PART_S, PATCHED, TOGETHER
from xttsbench.fixes.verified import verified
from xttsbench.planning import Job
from xttsbench.records.fix import Edit, Fix, Patch
from xttsbench.records.pipeline import Element, Elements, Epoch, Row
from xttsbench.records.plan import Accelerator
from xttsbench.workflows.optimize.trials import verify
from xttsbench.workflows.optimize.verification import Verification

AGAIN = f"{ORIGINAL}:again"
JOB = Job(target="data.py:make", kwargs={"size": 4}, emulated_ms=(), steps=100, window_s=2.0, seed=5)
IMPORT_S, GUARD_S, AROUND_S = 4.0, 3.0, 1.0
STALLED = {"status": "stalled", "cause": "said nothing for 15 s"}
INTERRUPTED = {"status": "interrupted", "cause": "interrupted in phase 'as_is'"}


def elements(first: int = 0, **fields: Any) -> Elements:
    rows = tuple(Row(hashes=(f"{value:016x}",)) for value in range(first, first + 8))
    epoch = Epoch(elements=(Element(shapes=("int64 (8,)",), rows=rows),), ended=True)
    given = {"spec": "TensorSpec(shape=(8,), dtype=tf.int64, name=None)", "components": ("element",)} | fields
    return Elements(epochs=(epoch, epoch), **given)


class Fake:
    """A session of a target whose mean step is known for every arm; its clock moves by what a trial is said to take.

    Args:
        walls: arm -> seconds of its mean step; for one that is not named the product of its parts' speed-ups.
        guards: arm -> fields of its trial of fingerprints, where that is not what the original yields.
        dies: (group, arm, number of the trial of that arm in the group) -> fields of a trial that ends badly.
        noise: standard deviation of a process's mean step, as a share.
        passes: fix -> seconds until its cache is full; what is not full is as slow as the original.
    """

    def __init__(self, build, walls, guards, dies, noise, passes):
        self._passes = passes
        self.earlier = {}
        self.block = 0
        self.side_by_side = ""
        self.import_s = IMPORT_S
        self.fills_anew = True
        self.spent_s = 20.0
        self.labels = []
        self.limits = []
        self._build, self._walls, self._guards, self._dies, self._noise = build, walls, guards, dies, noise
        self.trials = [build.ladder(wait=0.03, step=0.01, duration_s=8.0)]

    def run(self, spec, limits, label=None, *, note=None):
        self.labels.append(label)
        self.limits.append(limits)
        if spec.block != self.block:
            self.block = spec.block
            self.spent_s += IMPORT_S
        before = [t for t in self.trials if (t.spec.group, t.spec.arm) == (spec.group, spec.arm)]
        fields = dict(self._dies.get((spec.group, spec.arm, len(before)), {}))
        if spec.kind == "elements":
            duration_s = GUARD_S
            given = {} if fields else {"elements": elements()} | self._guards.get(spec.arm, {})
            record = self._build.trial("elements", **given | fields)
        elif fields:
            duration_s = limits.stall_s
            record = self._build.trial("arm", **fields)
        else:
            pass_s = max((self._passes.get(part, 0.0) for part in spec.arm.split(" + ")), default=0.0)
            pass_s = min(pass_s, PART_S) if spec.source_limit else pass_s
            allowed_s = spec.fill_s or 1.5 * spec.window_s
            duration_s = spec.window_s + AROUND_S + min(pass_s, allowed_s)
            wall_s = self._wall_s(spec.arm if pass_s <= allowed_s else ORIGINAL)
            record = self._build.arm_trial(spec.arm, wall_s, block=spec.block, process_sd=self._noise)
        record = record.model_copy(update={"spec": spec, "duration_s": duration_s})
        self.spent_s += duration_s
        self.trials.append(record)
        return record

    def run_all(self, specs, limits, *, most=1):
        found = []
        for spec in specs:
            found.append(self.run(spec, limits))
            if found[-1].status == "interrupted":
                break
        return found

    def _wall_s(self, arm):
        if arm in self._walls:
            return self._walls[arm]
        original, wall_s = self._walls[ORIGINAL], self._walls[ORIGINAL]
        for part in arm.split(" + ") if arm not in (AGAIN, PATCHED) else ():
            wall_s *= self._walls[part] / original
        return wall_s

    def of(self, group: str) -> list[str]:
        """The arms of one round, in the order in which they were run."""
        return [trial.spec.arm for trial in self.trials if trial.spec.group == group]


@pytest.fixture(scope="module")
def verification(build):
    """``verification("a", "b", walls={...}, folder=...)``: the session and the patch of a verification of these."""

    def run(
        *names: str,
        folder: Path,
        walls: Mapping[str, float] | None = None,
        guards: Mapping[str, dict[str, Any]] | None = None,
        dies: Mapping[tuple[str, str, int], dict[str, Any]] | None = None,
        budget_s: float = 1000.0,
        patches: bool = False,
        noise: float = 0.004,
        passes: Mapping[str, float] | None = None,
        fills_anew: bool = True,
    ) -> tuple[Fake, Patch | None]:
        walls = {ORIGINAL: 0.04, **dict.fromkeys(names, 0.02), **(walls or {})}
        session = Fake(build, walls, dict(guards or {}), dict(dies or {}), noise, dict(passes or {}))
        session.fills_anew = fills_anew
        proposed = [
            Proposal(
                name,
                tuple(name.split(" + ")),
                2.0,
                name,
                (),
                worth=name != "useless",
                why_not=None,
                first_pass_s=(passes or {}).get(name),
            )
            for name in names
        ]
        wanted = Verification(
            job=JOB,
            accelerator=Accelerator(),
            evidence=Evidence(kind="dataset", has_step=False, emulated=False, wall_s=0.04),
            proposed=proposed,
            directory=folder,
            session=session,
            until_s=session.spent_s + budget_s,
            patch=(lambda fixes: patch_of(fixes, folder)) if patches else lambda _: None,
        )
        return session, verify(wanted)

    return run


@pytest.fixture
def verifying(verification, tmp_path):
    return functools.partial(verification, folder=tmp_path)


def patch_of(fixes: str, folder: Path) -> Patch:
    file = str(folder / "data.py")
    edit = Edit(fix=fixes, file=file, line=1, before="map(f)", after="map(f, 4)")
    return Patch(edits=(edit,), diff=f"the diff of {fixes}", files={file: f"# {fixes}\n"})


def test_the_original_three_times_and_each_fix_then_blocks(verifying) -> None:
    session, patch = verifying("prefetch", "parallel-map", walls={"prefetch": 0.03})
    guards = session.of(GUARD)
    assert guards[:5] == [ORIGINAL, ORIGINAL, ORIGINAL, "prefetch", "parallel-map"]
    assert [trial.spec.seed for trial in session.trials[1:4]] == [5, 5, 6]
    alone = session.of(ALONE)
    assert alone.count("parallel-map") == LEAST_BLOCKS
    assert alone.count(AGAIN) == LEAST_BLOCKS  # by then its noise is known
    both = "parallel-map + prefetch"
    assert guards[5:] == [both]
    assert set(session.of(TOGETHER)) == {ORIGINAL, both, "parallel-map"}
    assert patch is None
    found = verified(session.trials, Accelerator())
    assert found.chosen == both
    assert found.measured[both].evidence.ratio.estimate == pytest.approx(0.04 / 0.015, rel=0.03)


def test_a_fix_that_is_behind_another_or_no_faster_is_measured_no_further(verifying) -> None:
    names = ["parallel-map", "prefetch", "batch-first", "cache@Map/_1"]
    walls = {"parallel-map": 0.0399, "prefetch": 0.02, "batch-first": 0.001, "cache@Map/_1": 0.03}
    session, _ = verifying(*names, walls=walls, dies={(ALONE, "cache@Map/_1", 0): STALLED})
    assert session.of(ALONE).count("parallel-map") <= LEAST_BLOCKS
    assert session.of(ALONE).count("cache@Map/_1") == 1
    found = verified(session.trials, Accelerator())
    assert found.behind["parallel-map"] == found.behind["prefetch"] == "batch-first"
    proposed = [Proposal(name, (name,), None, name, (), worth=True) for name in names]
    rows = {row.name: row for row in results(proposed, found, None)}
    assert rows["cache@Map/_1"].outcome == "rejected"
    assert "said nothing" in rows["cache@Map/_1"].why
    assert rows["parallel-map"].outcome == "not verified"
    assert "so it was measured no further: 1.0" in rows["parallel-map"].why


def test_the_best_one_that_nothing_competes_with_is_not_measured_again(verifying) -> None:
    session, _ = verifying("prefetch", walls={"prefetch": 0.005, PATCHED: 0.005}, patches=True)
    assert set(session.of(TOGETHER)) == {ORIGINAL, PATCHED}
    assert verified(session.trials, Accelerator()).chosen == "prefetch"
    assert "prefetch" not in verifying("prefetch", walls={"prefetch": 0.005})[0].of(TOGETHER)


def test_a_fix_that_is_undecided_goes_on_as_long_as_the_time_may_decide_it(verifying) -> None:
    walls, noise = {"prefetch": 0.04 / 1.12}, 0.06
    spent, processes = [], []
    for budget_s in (100.0, 2000.0):
        session, _ = verifying("prefetch", walls=walls, noise=noise, budget_s=budget_s)
        spent.append(session.spent_s)
        processes.append(session.of(ALONE).count("prefetch"))
    assert spent[0] > 20.0 + 0.6 * 100.0 or verified(session.trials, Accelerator()).chosen
    assert processes[1] > processes[0]
    assert verified(session.trials, Accelerator()).chosen == "prefetch"


def test_every_trial_is_of_the_job_and_every_round_of_blocks_of_its_own(verifying) -> None:
    session, _ = verifying("prefetch", "cache@Map/_1")
    specs = [trial.spec for trial in session.trials[1:]]
    assert len({spec.trial_id for spec in specs}) == len(specs)
    assert {(spec.target, spec.kwargs["size"], spec.steps) for spec in specs if spec.kind == "arm"} == {
        ("data.py:make", 4, 100)
    }
    blocks = {group: {spec.block for spec in specs if spec.group == group} for group in (ALONE, TOGETHER)}
    assert blocks[ALONE]
    assert blocks[TOGETHER]
    assert blocks[ALONE].isdisjoint(blocks[TOGETHER] | {0})
    assert {spec.fill_caches for spec in specs if spec.kind == "arm"} == {True}
    seen = [spec for spec in specs if spec.kind == "elements"]
    assert len({(spec.source_limit, spec.steps) for spec in seen}) == 1
    assert all(spec.jitter == (spec.arm != ORIGINAL) for spec in seen)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_original_that_cannot_be_read_ends_it(verifying, number) -> None:
    session, patch = verifying("prefetch", dies={(GUARD, ORIGINAL, number): STALLED})
    assert set(session.of(GUARD)) == {ORIGINAL, "prefetch"}
    assert (session.of(ALONE), patch) == ([], None)
    assert "said nothing" in verified(session.trials, Accelerator()).unreadable


@pytest.mark.parametrize("names", [(), ("useless",)])
def test_without_a_fix_that_is_worth_it_nothing_is_run(verifying, names) -> None:
    session, patch = verifying(*names)
    assert (len(session.trials), patch) == (1, None)


def test_without_time_nothing_is_run(verifying) -> None:
    session, _ = verifying("prefetch", budget_s=0.0)
    assert len(session.trials) == 1


def test_what_changes_the_data_is_not_measured(verifying) -> None:
    guards = {"cache@Map/_1": {"elements": elements(1)}, "parallel-map": STALLED | {"elements": None}}
    session, _ = verifying("cache@Map/_1", "parallel-map", "prefetch", guards=guards)
    assert set(session.of(ALONE)) == {ORIGINAL, AGAIN, "prefetch"}
    assert session.of(TOGETHER) == []
    assert verified(session.trials, Accelerator()).chosen == "prefetch"


def test_where_every_fix_changes_the_data_nothing_is_measured(verifying) -> None:
    session, _ = verifying("prefetch", guards={"prefetch": {"elements": elements(objections=("it counts",))}})
    assert session.of(ALONE) == []
    assert verified(session.trials, Accelerator()).chosen is None


def test_a_fix_that_hangs_while_it_is_measured_costs_one_trial(verifying) -> None:
    names = ("parallel-map", "prefetch")
    session, _ = verifying(*names, dies={(ALONE, "parallel-map", 0): STALLED})
    assert session.of(ALONE).count("parallel-map") == 1
    assert session.of(ALONE).count("prefetch") >= 1
    found = verified(session.trials, Accelerator())
    assert found.chosen == "prefetch"
    assert found.measured["parallel-map"].ended == "stalled: said nothing for 15 s"
    assert all("parallel-map" not in arm for arm in session.of(TOGETHER))


def test_nothing_that_helps_ends_after_the_first_round(verifying) -> None:
    session, patch = verifying("prefetch", walls={"prefetch": 0.04}, patches=True)
    assert LEAST_BLOCKS < len(session.of(ALONE)) / 2 <= 8  # until a gain that matters is ruled out
    assert (session.of(TOGETHER), patch) == ([], None)


def test_what_together_changes_the_data_gives_way_to_the_next_best(verifying) -> None:
    both = "parallel-map + prefetch"
    guards = {both: {"elements": elements(1)}}
    session, _ = verifying("prefetch", "parallel-map", walls={"parallel-map": 0.01}, guards=guards)
    assert set(session.of(TOGETHER)) == {ORIGINAL, "prefetch", "parallel-map"}
    assert verified(session.trials, Accelerator()).chosen == "parallel-map"


@pytest.mark.parametrize("expected", [3.0, 2.0, None])
@pytest.mark.parametrize(("both_s", "best"), [(0.0075, "parallel-map + prefetch"), (0.015, "parallel-map")])
def test_what_is_the_best_in_the_end_is_patched_whatever_was_expected_of_it(
    verifying, monkeypatch, tmp_path, expected, both_s, best
) -> None:
    monkeypatch.setattr(
        "xttsbench.workflows.optimize.trials.predict_speedup", lambda _, fixes: expected if len(fixes) > 1 else 2.0
    )
    walls = {"parallel-map": 0.015, "parallel-map + prefetch": both_s}
    session, patch = verifying("prefetch", "parallel-map", walls=walls, patches=True)
    assert (patch.diff, patch.ran) == (f"the diff of {best}", True)
    assert (tmp_path / "patched" / "whole" / "0-data.py").read_text() == f"# {best}\n"
    assert set(session.of(TOGETHER)) >= {ORIGINAL, PATCHED, "parallel-map", "parallel-map + prefetch"}


@pytest.mark.parametrize("buffered_s", [0.01, 0.02])
def test_bursts_that_a_fix_leaves_over_are_met_by_a_longer_buffer_in_the_last_round(
    verifying, monkeypatch, buffered_s
) -> None:
    asked = []

    def longer(_, fixes, steps):
        asked.append((fixes.names, float(steps.wall_s.mean())))
        return Fix.of("buffer", 32)

    monkeypatch.setattr("xttsbench.workflows.optimize.trials.longer_buffer", longer)
    both = "parallel-map:32 + buffer:32 + thread-pool:32"
    session, _ = verifying("parallel-map:32 + thread-pool:32", walls={both: buffered_s})
    assert asked == [(("parallel-map:32", "thread-pool:32"), pytest.approx(0.02, rel=0.05))]
    assert set(session.of(TOGETHER)) == {ORIGINAL, both, "parallel-map:32 + thread-pool:32"}
    chosen = verified(session.trials, Accelerator()).chosen
    assert chosen == (both if buffered_s == 0.01 else "parallel-map:32 + thread-pool:32")


def test_what_looked_faster_but_was_not_decided_gets_more_blocks_of_its_own(verifying) -> None:
    session, patch = verifying("prefetch", walls={"prefetch": 0.04 / 1.3}, noise=0.12, budget_s=200.0)
    assert verified([t for t in session.trials if t.spec.group != TOGETHER], Accelerator()).best_first == []
    assert set(session.of(TOGETHER)) == {ORIGINAL, "prefetch"}
    assert session.of(ALONE).count("prefetch") >= LEAST_BLOCKS
    assert patch is None


@pytest.mark.parametrize(("speedup", "noise"), [(1.3, 0.12), (1.3, 0.3), (1.1, 0.3), (2.0, 0.004)])
def test_there_is_a_patch_only_of_what_is_chosen(verifying, speedup, noise) -> None:
    walls = {"prefetch": 0.04 / speedup}
    session, patch = verifying("prefetch", walls=walls, noise=noise, budget_s=200.0, patches=True)
    assert (patch is None) is (verified(session.trials, Accelerator()).chosen is None)
    if speedup == 2.0:
        assert patch is not None
    if noise == 0.3:
        assert patch is None


def test_no_more_than_six_are_measured_alone(verifying) -> None:
    session, _ = verifying(*(f"buffer:{number}" for number in range(9)), budget_s=10_000.0)
    assert set(session.of(ALONE)) - {ORIGINAL, AGAIN} == {f"buffer:{number}" for number in range(6)}


def test_a_small_budget_is_for_the_best_one_and_it_gets_its_six_blocks(verifying) -> None:
    # 4 guards of 3 s, then 6 blocks of 4 s of import and two trials of 1.8 s: 58 s; half of that is planned for.
    session, _ = verifying("parallel-map", "prefetch", "buffer:8", budget_s=62.0)
    assert session.of(GUARD)[:4] == [ORIGINAL] * 3 + ["parallel-map"]
    assert "prefetch" not in session.of(GUARD)
    assert session.of(ALONE).count("parallel-map") == LEAST_BLOCKS
    assert verified(session.trials, Accelerator()).chosen == "parallel-map"


@pytest.mark.parametrize(("worth", "goes_on"), [(0.019, False), (0.033, True)])
def test_time_that_is_left_is_for_what_is_expected_to_give_more_than_the_best_one(verifying, worth, goes_on) -> None:
    """Each was expected to be twice as fast; planned was one of them, which was soon decided."""
    walls = {"parallel-map": worth, "prefetch": 0.01}
    session, _ = verifying("parallel-map", "prefetch", walls=walls, budget_s=75.0)
    assert session.of(GUARD)[:4] == [ORIGINAL] * 3 + ["parallel-map"]
    assert ("prefetch" in session.of(ALONE)) is goes_on
    assert session.of(GUARD).count(ORIGINAL) == 3
    assert ("prefetch" in verified(session.trials, Accelerator()).chosen) is goes_on


def test_in_place_of_one_that_changes_the_data_the_next_is_tried(verifying) -> None:
    guards = {"parallel-map": {"elements": elements(1)}}
    session, _ = verifying("parallel-map", "prefetch", "buffer:8", guards=guards, budget_s=40.0)
    assert session.of(GUARD)[3:5] == ["parallel-map", "prefetch"]
    assert set(session.of(ALONE)) == {ORIGINAL, AGAIN, "prefetch"}
    assert verified(session.trials, Accelerator()).chosen == "prefetch"


def test_ones_that_fall_are_replaced_only_while_there_is_time_to_measure(verifying) -> None:
    names = [f"buffer:{number}" for number in range(30)]
    guards = {name: {"elements": elements(1)} for name in names}
    session, _ = verifying(*names, guards=guards, budget_s=80.0)
    assert 3 + 1 < len(session.of(GUARD)) < 3 + 25
    assert session.spent_s < 20.0 + 80.0 - LEAST_BLOCKS * (IMPORT_S + 2 * AROUND_S)


@pytest.fixture(scope="module")
def by_budget(verification, tmp_path_factory: pytest.TempPathFactory) -> dict[float, Fake]:
    """The session of a verification of the same four fixes, by the seconds that it may take."""
    names = ("parallel-map", "prefetch", "buffer:8", "thread-pool:8")
    return {
        budget_s: verification(*names, budget_s=budget_s, patches=True, folder=tmp_path_factory.mktemp("run"))[0]
        for budget_s in (25.0, 62.0, 90.0, 140.0, 300.0, 600.0)
    }


def test_the_budget_is_kept(by_budget) -> None:
    for budget_s, session in by_budget.items():
        # The last guard, of the patch, may begin before the end; a block is begun only where it is expected to end.
        assert session.spent_s <= 20.0 + budget_s + GUARD_S
        blocks: dict[int, list[str]] = {}
        for trial in session.trials:
            if trial.spec.group in (ALONE, TOGETHER):
                blocks.setdefault(trial.spec.block, []).append(trial.spec.arm)
        assert all(len(arms) == len(set(arms)) > 1 and ORIGINAL in arms for arms in blocks.values())


def test_more_time_means_more_fixes_and_longer_windows(by_budget) -> None:
    sessions = [session for budget_s, session in by_budget.items() if budget_s >= 62.0]
    tried = [len(set(session.of(ALONE))) for session in sessions]
    windows = [next(t.spec.window_s for t in session.trials if t.spec.group == ALONE) for session in sessions]
    assert tried == sorted(tried)
    assert (tried[0], tried[-1]) == (3, 6)
    assert all(0.8 <= window_s <= 2.0 for window_s in windows)


INTERRUPTIONS = [
    (GUARD, ORIGINAL, 1),
    (GUARD, "prefetch", 0),
    (ALONE, "prefetch", 0),
    (GUARD, "parallel-map + prefetch", 0),
    (GUARD, PATCHED, 0),
    (TOGETHER, ORIGINAL, 3),
]


@pytest.mark.parametrize("when", INTERRUPTIONS, ids=lambda when: f"{when[0]} {when[1]}")
def test_an_interruption_is_the_last_trial(verifying, when) -> None:
    session, _ = verifying("prefetch", "parallel-map", dies={when: INTERRUPTED}, patches=True)
    assert session.trials[-1].status == "interrupted"
    assert [trial.status for trial in session.trials[:-1]] == ["ok"] * (len(session.trials) - 1)
    assert (session.trials[-1].spec.group, session.trials[-1].spec.arm) == when[:2]


def test_the_patched_copy_is_what_is_run_and_the_file_itself_is_left_alone(verifying, tmp_path) -> None:
    source = tmp_path / "data.py"
    source.write_text("the user's own\n", encoding="utf-8")
    session, patch = verifying("prefetch", patches=True)
    (guard,) = [trial.spec for trial in session.trials if trial.spec.arm == PATCHED and trial.spec.group == GUARD]
    copy = Path(guard.patched[str(source)])
    assert copy != source
    assert tmp_path in copy.parents
    assert copy.read_text(encoding="utf-8") == "# prefetch\n"
    assert source.read_text(encoding="utf-8") == "the user's own\n"
    assert (guard.fix, guard.jitter) == (None, True)
    measured = [trial.spec for trial in session.trials if trial.spec.arm == PATCHED and trial.spec.group == TOGETHER]
    assert [spec.patched for spec in measured] == [guard.patched] * len(measured)
    assert len(measured) >= LEAST_BLOCKS
    assert {spec.fix for spec in measured} == {None}
    assert (patch.diff, patch.ran) == ("the diff of prefetch", True)


def test_a_patch_that_yields_other_data_is_not_measured(verifying) -> None:
    session, patch = verifying("prefetch", guards={PATCHED: {"elements": elements(3)}}, patches=True)
    assert session.of(TOGETHER) == []
    assert patch.ran is True
    assert verified(session.trials, Accelerator()).semantics[PATCHED].equivalent is False


def test_where_the_fresh_blocks_choose_another_fix_the_patch_is_that_one_s(verifying) -> None:
    both = "parallel-map + prefetch"
    # Together they are no faster than the one alone, as fresh blocks show.
    session, patch = verifying("prefetch", "parallel-map", walls={"parallel-map": 0.01, both: 0.04}, patches=True)
    assert both in session.of(TOGETHER)
    assert verified(session.trials, Accelerator()).chosen == "parallel-map"
    assert (patch.diff, patch.ran, patch.why_not) == ("the diff of parallel-map", True, None)
    assert {Path(copy).read_text() for t in session.trials for copy in t.spec.patched.values()} == {"# parallel-map\n"}


def test_a_cache_is_filled_before_it_is_measured_however_long_its_first_pass_is(verifying) -> None:
    walls, passes = {"cache@a": 0.005, "prefetch": 0.035}, {"cache@a": 7.0}
    session, _ = verifying("cache@a", "prefetch", walls=walls, passes=passes, budget_s=400.0)
    assert verified(session.trials, Accelerator()).chosen == "cache@a + prefetch"
    assert session.of(TOGETHER).count("cache@a + prefetch") == LEAST_BLOCKS
    for trial, limits in zip(session.trials[1:], session.limits, strict=True):
        if trial.spec.kind == "arm":
            assert trial.spec.fill_s > passes["cache@a"]
            assert limits.stall_s > trial.spec.fill_s  # it says nothing while it fills
    assert session.spent_s <= 420.0


def test_a_cache_that_takes_long_to_fill_is_measured_on_a_part_of_the_data(verifying) -> None:
    walls, passes = {"cache@a": 0.005, "prefetch": 0.02}, {"cache@a": 4000.0}
    cut = {ORIGINAL: {"elements": elements(source_limit=65)}, "cache@a": {"elements": elements(source_limit=65)}}
    cut |= {"prefetch": cut["cache@a"], "cache@a + prefetch": cut["cache@a"]}
    session, _ = verifying("cache@a", "prefetch", walls=walls, passes=passes, guards=cut, budget_s=400.0)
    found = verified(session.trials, Accelerator())
    assert found.chosen == "cache@a + prefetch"
    blocks: dict[int, set[int | None]] = {}
    for spec in (trial.spec for trial in session.trials if trial.spec.kind == "arm"):
        blocks.setdefault(spec.block, set()).add(spec.source_limit)
        assert spec.source_limit is not None or "cache" not in spec.arm
    assert {len(limits) for limits in blocks.values()} == {1}  # what is compared reads the same data
    limit = next(iter(found.parts.values()))
    assert limit >= PART_S / 0.04
    assert found.parts == dict.fromkeys(found.parts, limit)
    proposed = [Proposal(name, (name,), None, name, (), worth=True) for name in ("cache@a", "prefetch")]
    rows = {row.name: row for row in results(proposed, found, None)}
    assert rows["cache@a"].source_limit == limit
    on_part = f", from the second epoch on, measured on {limit} elements of each source; with the epoch that fills the"
    assert on_part in rows["cache@a"].why
    assert "measured on" not in rows["prefetch"].why  # alone it reads all of them


def test_a_cache_that_fills_within_seconds_is_measured_on_a_part_where_four_fillings_would_take_most_of_the_time(
    verifying,
) -> None:
    cut = {arm: {"elements": elements(source_limit=65)} for arm in (ORIGINAL, "cache@a")}
    session, _ = verifying("cache@a", walls={"cache@a": 0.005}, passes={"cache@a": 7.0}, guards=cut, budget_s=50.0)
    assert verified(session.trials, Accelerator()).chosen == "cache@a"


def test_a_cache_that_takes_too_long_to_fill_does_not_take_the_time_of_the_others(verifying) -> None:
    """Its sources cannot be cut, as the runs of the original showed."""
    session, _ = verifying("cache@a", "prefetch", passes={"cache@a": 40.0}, budget_s=250.0)
    assert {*session.of(ALONE), *session.of(TOGETHER)} <= {ORIGINAL, AGAIN, "prefetch"}
    found = verified(session.trials, Accelerator())
    assert found.chosen == "prefetch"


def test_why_a_cache_was_not_measured_is_told_in_seconds() -> None:
    late = Proposal("cache@a", ("cache@a",), 9.0, "keeps", (), worth=True, why_not=None, first_pass_s=25.0)
    (row,) = results([late], verified([], Accelerator()), None)
    assert row.outcome == "not verified"
    assert row.why.endswith("its cache takes 25 s to fill")


def test_a_cache_that_stays_full_from_trial_to_trial_is_filled_once(verifying) -> None:
    """One in memory where all trials are in one process."""
    session, _ = verifying("cache@a", passes={"cache@a": 25.0}, budget_s=250.0, fills_anew=False)
    assert "cache@a" in session.of(ALONE)
