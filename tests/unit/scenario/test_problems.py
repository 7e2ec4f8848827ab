"""What only the expansion of a scenario's arms shows: each with its place, and what was probably meant."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from xttsbench.errors import UsageError
from xttsbench.scenario.grid import configurations
from xttsbench.scenario.load import changed
from xttsbench.scenario.settings import MOST_ARMS, MOST_SWEEP_ARMS
from xttsbench.targets.configuration import configuration_problems

BUNDLED = "name: mine\nworkload: xtts\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base: {lodaer: packed}\n", ["3, base.lodaer: * did you mean 'loader'?"]),
        ("grid:\n  mode: [graph, jit]\n  prefetch: [-2, 0]\n", ["4, grid.mode.1: *'jit'", "5, grid.prefetch.0: *-2"]),
        ("arms:\n- {id: a}\n- config:\n    workers: -2\n", ["6, arms.1.config.workers: *-2"]),
        ("base: {batch_size: 8, tokens_per_batch: 900}\n", ["3, base.tokens_per_batch: *give one*"]),
        (
            "base: {batch_size: 8}\ngrid:\n  workers: [1, 2]\n  tokens_per_batch: [null, 900, 999]\n",
            ["6, grid.tokens_per_batch: *give one*(in workers=1,tokens_per_batch=900)"],
        ),
        (
            "arms:\n- config: {batch_size: 8}\n- config: {tokens_per_batch: 9, batch_size: 8}\n",
            ["5, arms.1.config.tokens_per_batch: *give one*"],
        ),
    ],
)
def test_arguments_of_the_bundled_workload_are_checked_arm_by_arm(problems, text: str, expected: list[str]) -> None:
    found = problems(text, head=BUNDLED)
    assert len(found) == len(expected), found
    for line, pattern in zip(found, expected, strict=True):
        assert fnmatchcase(line.removeprefix("line "), pattern.replace("[", "[[]")), line


def test_an_argument_that_is_missing_has_its_place_in_the_base(problems) -> None:
    found = problems("base: {workers: 2}\n", head=BUNDLED, arguments=lambda arguments: [("rate", "it is missing")])
    assert found == ["line 3, base.rate: it is missing"]


def test_arms_and_a_grid_are_one_problem(problems) -> None:
    assert len(problems("arms: [{id: a}]\ngrid: {b: [1]}\nbaseline: lost\n")) == 1


def test_a_target_of_somebody_else_takes_anything(scenario) -> None:
    found = scenario("grid: {loader: [mine, [1, 2], null], batch_size: [8], tokens_per_batch: [9]}\n")
    assert [config["loader"] for config in configurations(found).values()] == ["mine", [1, 2], None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # grid
        ("grid: {a: {from: 1, to: 8}}\n", "grid.a: a list is expected"),
        # baseline
        (
            "arms: [{id: new}, {id: old}]\nbaseline: odl\n",
            "baseline: no configuration has the id 'odl'; did you mean 'old'?",
        ),
        ("arms: [{id: new}]\nbaseline: 3\n", "baseline: text is expected"),
        # sweep
        ("sweep: {blocks: 1}\n", "sweep.blocks: input should be greater than or equal to 2"),
        (
            "grid: {prefetch: [1]}\nsweep: {cost: [prefech]}\n",
            "sweep.cost.0: no configuration sets 'prefech'; did you mean 'pref",
        ),
        ("base: {a: 1}\nsweep: {cost: [a, a]}\n", "sweep.cost.1: 'a' is there already"),
        ("loss_tolerance: 0\n", "loss_tolerance: input should be greater than 0"),
        # numbers that no file should hold
        (f"steps: 0x{'f' * 5000}\n", "steps: "),
        (f"grid: {{a: [0x{'f' * 5000}]}}\n", "grid.a.0: a whole number of at most 64 bits is expected"),
    ],
)
def test_one_error_of_the_arms(problems, text: str, words: str) -> None:
    found = problems(text)
    assert any(words in line for line in found), found


def test_errors_of_the_arms_stand_beside_all_others(problems) -> None:
    found = problems(
        "grid: {prefetch: [0, 2]}\nsteps: many\nbaseline: prefech=0\nsweep: {cost: [workers], finalist: 2}\n"
    )
    assert [line.partition(": ")[0].removeprefix("line ") for line in found] == [
        "4, steps",
        "5, baseline",
        "6, sweep.finalist",
        "6, sweep.cost.0",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Were one of these expanded, the test would not come to its end.
        (
            f"grid: {{{', '.join(f'{key}: {[*range(1000)]}' for key in 'abcd')}}}\n",
            "grid: it makes at least 10^12",
        ),
        (
            f"grid: {{a: {[*range(1000)]}, b: {[*range(500)]}}}\n",
            "grid: it makes 500000 configurations, and",
        ),
        (f"grid: {{a: {[*range(10_001)]}}}\n", "grid.a: list should have at most 10000 items"),
    ],
)
def test_a_huge_grid_is_refused_without_being_expanded(problems, text: str, words: str) -> None:
    found = problems(text, most_arms=MOST_SWEEP_ARMS)
    assert len(found) == 1
    assert words in found[0]


def test_run_and_sweep_have_limits_of_their_own(scenario, problems) -> None:
    grid = f"grid: {{a: {[*range(13)]}, b: {[*range(5)]}}}\n"
    assert MOST_ARMS == 64
    assert (
        "grid: it makes 65 configurations, and 64 are the most that one run measures; leave some out"
        in problems(grid)[0]
    )
    assert len(configurations(scenario(grid, most_arms=MOST_SWEEP_ARMS))) == 65
    many = scenario(grid, most_arms=MOST_SWEEP_ARMS)
    assert changed(many, {"seed": 1}, {}).seed == 1
    assert changed(many, {}, {"c": 1}, most_arms=MOST_SWEEP_ARMS).base == {"c": 1}
    with pytest.raises(UsageError, match=r"^--set c=1: grid: it makes 65 configurations"):
        changed(many, {}, {"c": 1})
    assert len(configurations(scenario(f"grid: {{a: {[*range(16)]}, b: {[*range(4)]}}}\n"))) == 64
    arms = "arms:\n" + "- {}\n" * 65
    assert "arms: it makes 65 configurations" in problems(arms)[0]
    assert len(configurations(scenario(arms, most_arms=MOST_SWEEP_ARMS))) == 65
    too_many = f"grid: {{a: {[*range(10_000)]}, b: [1, 2]}}\n"
    refused = problems(too_many, most_arms=99_999)[0]
    assert "makes 20000 configurations, and 10000 are the most that a sweep takes" in refused


def test_what_the_command_line_sets_is_checked_with_the_arms(scenario) -> None:
    found = scenario("base: {workers: 2}\ngrid: {loader: [tf_wav, packed]}\nbaseline: loader=packed\n", head=BUNDLED)
    assert changed(found, {}, {"prefetch": 1}, arguments=configuration_problems).base == {"workers": 2, "prefetch": 1}
    with pytest.raises(UsageError, match=r"^--set wokers=4: base\.wokers: .*did you mean 'workers'"):
        changed(found, {}, {"wokers": 4}, arguments=configuration_problems)
    own = scenario("")
    assert changed(own, {}, {"wokers": 4}, arguments=configuration_problems).base == {"wokers": 4}
    with pytest.raises(UsageError, match=r"^--set loader=packed: the configurations of 'mine' set 'loader' themselves"):
        changed(found, {}, {"loader": "packed"})
    with pytest.raises(UsageError, match=r"^--set rate: a finite number is expected"):
        changed(found, {}, {"rate": float("inf")})


def test_a_changed_scenario_keeps_every_form(scenario) -> None:
    found = scenario("grid: {c: [1, 2], e: [x, null]}\nbaseline: c=2,e=x\nsweep: {cost: [c]}\n")
    assert changed(found, {}, {}) == found
    assert configurations(changed(found, {"seed": 3}, {"f": 1})) == configurations(found)
