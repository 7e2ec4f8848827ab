"""Scenarios: every error at once with its line and key, and every YAML of the project is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.planning import plan_comparison, plan_procedure
from xttsbench.records.plan import Accelerator, Procedure
from xttsbench.scenario.grid import configurations
from xttsbench.scenario.load import changed, read_yaml
from xttsbench.scenario.problems import unchecked
from xttsbench.scenario.settings import Scenario
from xttsbench.shipped import available, locate

ROOT = Path(__file__).parents[3]
SHIPPED = {
    "batch": 4,
    "diagnose": 5,
    "full": 45,
    "loader": 5,
    "mode": 3,
    "oscillation": 2,
    "precision": 2,
    "prefetch": 6,
    "starved-gpu": 2,
    "threads": 5,
    "workers": 6,
}
"""Name -> arms, the baseline's second run not counted."""
RUNS = {"diagnose": "diagnose", "oscillation": "run oscillation", "starved-gpu": "run starved-gpu"}
"""The command of those that are no sweeps."""


def test_every_scenario_of_the_project_loads_and_is_planned(load) -> None:
    names = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))
    assert names == available("scenarios") == sorted(SHIPPED)
    for name in names:
        found = load(locate("scenarios", name))
        assert found.name == name
        assert found.description
        comparison = plan_comparison(
            found, [parse_accelerator(text, beside=ROOT / "scenarios") for text in found.accelerator]
        )
        assert comparison.bundled
        assert sum(arm.role != "aa" for arm in comparison.arms) == SHIPPED[name]
        assert comparison.blocks >= (1 if name == "diagnose" else 6)
        assert len(found.accelerator) == 1 or name == "diagnose"  # a sweep has one
        text = locate("scenarios", name).read_text(encoding="utf-8")
        command = RUNS.get(name, f"sweep --grid {name}")
        assert f"#   xttsbench {command}\n" in text, f"{name} does not open with its command"
        told = "# yaml-language-server: $schema=scenario.schema.json\n# "
        assert text.startswith(told), f"{name} does not name its schema"


def test_what_is_not_written_has_a_default(scenario) -> None:
    head = "name: mine\nworkload: xtts\n"
    found = scenario("", head=head)
    assert (found.blocks, found.margin, found.accelerator, found.seed) == (24, 0.02, ["real"], 0)
    assert found.callable_name == "xttsbench.targets.bundled:make_workload"
    assert found.bundled
    assert scenario("base:\ndata:\nsteps:\nbaseline:\n", head=head) == found  # keys without a value


def test_values_keep_their_types(scenario) -> None:
    found = scenario("base: {lr: 1e-4, edges: [1, 2.5, x], none: null, cached: true, nested: {a: 1}}\nbudget_s: 60\n")
    assert found.base == {"lr": 1e-4, "edges": [1, 2.5, "x"], "none": None, "cached": True, "nested": {"a": 1}}
    assert found.budget_s == 60.0


def test_all_errors_come_at_once_in_the_order_of_the_file(problems) -> None:
    found = problems(
        "descripton: x\n"
        "blocks: eight\n"
        "arms:\n"
        "- {id: a, confg: {x: 1}}\n"
        "- {id: a}\n"
        "accelerator: [gpu, emulated:0, real]\n"
        "limits: {trial: 4, stall_s: -1}\n"
        "margin: 3\n"
    )
    assert [line.partition(": ")[0].removeprefix("line ") for line in found] == [
        "3, descripton",
        "4, blocks",
        "6, arms.0.confg",
        "7, arms.1.id",
        "8, accelerator.0",
        "8, accelerator.1",
        "9, limits.stall_s",
        "9, limits.trial",
        "10, margin",
    ]
    assert "did you mean 'description'?" in found[0]
    assert "a whole number is expected, got 'eight'" in found[1]
    assert "did you mean 'config'?" in found[2]
    assert "'a' is the id of configuration 0 already" in found[3]
    assert "'gpu': use real, emulated:MS" in found[4]
    assert "above 0" in found[5]
    assert "did you mean 'trial_s'?" in found[7]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arms: []\n", "arms: it is empty"),
        ("grid: {prefetch: []}\n", "grid.prefetch: it is empty"),
        ("grid: {prefetch: 2}\n", "grid.prefetch: a list is expected"),
        ("grid: {prefetch: [1, 2, 1]}\n", "grid.prefetch: a value is there twice"),
        (
            "grid: {a: [1,2,3,4,5,6,7,8,9], b: [1,2,3,4,5,6,7,8]}\n",
            "grid: it makes 72 configurations, and 64 are the most",
        ),
        ("arms: [{id: a}]\ngrid: {b: [1]}\n", "grid: give 'arms' or 'grid', not both"),
        ("arms: [{id: ../x}]\n", "arms.0.id: letters, digits"),
        ("arms: [5]\n", "arms.0: keys with values are expected, got '5'"),
        ("workload: xtts\n", "workload: give a target or the workload, not both"),
        ("accelerator: emulated:nowhere.txt\n", "accelerator: emulated:nowhere.txt"),
        ("accelerator: [real, real]\n", "accelerator.1: 'real' is there already"),
        ("base: {'a b': 1}\n", "base.a b: a keyword argument's name is expected"),
        ("base: {when: 2020-01-01}\n", "base.when: text, a number"),
        ("base: {x: .inf}\n", "base.x: a finite number is expected"),
        ("steps: 2\n", "steps: input should be greater than or equal to 4"),
        ("blocks: true\n", "blocks: a whole number is expected, got 'True'"),
        ("name: other\n", "name: given twice"),
        ("workload: speech\n", "workload: "),
        ("data: [x]\n", "data: it is for the bundled workload"),
    ],
)
def test_one_error(problems, text: str, words: str) -> None:
    found = problems(text)
    assert any(words in line for line in found), found


def test_the_target_is_checked_by_its_name(problems) -> None:
    for target, words in (("nowhere.py:make", "does not exist"), ("nowhere", "names no callable"), ("5", "text is")):
        head = f"name: mine\ntarget: {target}\n"
        assert any(words in line for line in problems("", head=head))
    assert any("it is missing; name what to measure" in line for line in problems("", head="name: mine\n"))
    head = "name: mine\ntarget: os:getcwd\ndata: there\n"
    assert any("data: it is for the bundled workload" in line for line in problems("", head=head))
    assert any("name: it is missing" in line for line in problems("", head="workload: xtts\n"))


def test_a_scenario_is_found_by_name_or_by_path(load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("scenarios", "diagnose") == ROOT / "scenarios" / "diagnose.yaml"
    assert locate("scenarios", "./diagnose.yaml") == Path("./diagnose.yaml")
    Path("mine").mkdir()
    with pytest.raises(InvalidInputError, match="mine is a directory"):
        load(locate("scenarios", "mine"))
    with pytest.raises(InvalidInputError, match="no scenario is called 'loder'; the nearest names: loader"):
        locate("scenarios", "loder")
    with pytest.raises(InvalidInputError, match=r"nowhere\.yaml"):
        load(locate("scenarios", "nowhere.yaml"))


def test_the_command_line_changes_a_scenario(scenario) -> None:
    text = "name: mine\nworkload: xtts\nbase: {x: 1, y: 2}\narms: [{id: a}, {id: b, config: {z: 1}}]\n"
    found = scenario("", head=text, arguments=unchecked)
    changes: dict[str, Any] = {"blocks": 2, "budget_s": 30.0, "steps": None, "accelerator": ["emulated:5"], "data": "d"}
    told = changed(found, changes, {"x": 9})
    assert (told.blocks, told.budget_s, told.steps, told.accelerator) == (2, 30.0, found.steps, ["emulated:5"])
    assert told.base == {"x": 9, "y": 2}
    assert told.arms == found.arms
    assert found.base == {"x": 1, "y": 2}
    assert changed(found, {}, {}) == found


def test_a_change_that_cannot_be_is_a_usage_error(scenario, tmp_path: Path) -> None:
    found = scenario("arms: [{id: a}, {id: b, config: {z: 1}}]\n")
    with pytest.raises(UsageError, match=r"--set z=2: the configurations of 'mine' set 'z' themselves"):
        changed(found, {}, {"z": 2})
    with pytest.raises(UsageError, match=r"--blocks: .*, got '0'"):
        changed(found, {"blocks": 0}, {})
    own = scenario("", head="name: mine\ntarget: os:getcwd\n")
    with pytest.raises(UsageError, match="--data is for the bundled workload"):
        changed(own, {"data": "d"}, {})


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "b", "", "x y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "from", "to", "step", "min", "id", "config"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([*Scenario.model_fields]), junk))
def test_whatever_a_file_holds_it_is_a_scenario_or_one_sentence(
    load, tmp_path_factory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("junk") / "mine.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "workload": "xtts"} | content))
    try:
        found = configurations(load(path))
    except InvalidInputError as error:
        found = str(error)
    assert found
    assert isinstance(found, dict) or "\n" not in found


TEXT = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
ARMS = [2, 2 * 2 * 4 * 3, 6, 2, 12]
"""Arms of each block, counted by hand."""


def test_there_are_as_many_blocks_as_are_counted() -> None:
    assert len(BLOCKS) == len(ARMS)
    assert TEXT.count("```yaml") == len(BLOCKS)


@pytest.mark.parametrize(("block", "arms"), [*zip(BLOCKS, ARMS, strict=True)])
def test_every_example_is_a_scenario(block: str, arms: int, load, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(block if "name:" in block else f"name: example\ntarget: os:getcwd\n{block}")
    found: Scenario = load(path, target=lambda _: None, most_arms=10_000)
    comparison = plan_comparison(found, [Accelerator()])
    assert sum(arm.role != "aa" for arm in comparison.arms) == arms


def test_the_defaults_that_it_gives_are_those(load, tmp_path: Path) -> None:
    head = "name: batch\ntarget: os:getcwd\n"
    (tmp_path / "bare.yaml").write_text(head)
    (tmp_path / "full.yaml").write_text(
        head + BLOCKS[0].partition("accelerator:")[1] + BLOCKS[0].partition("accelerator:")[2]
    )
    assert load(tmp_path / "full.yaml") == load(tmp_path / "bare.yaml")
    (tmp_path / "sweep.yaml").write_text(head + BLOCKS[-1])
    assert plan_procedure(load(tmp_path / "sweep.yaml")) == Procedure(cost=("prefetch", "workers"))


def test_every_shipped_scenario_is_in_its_table() -> None:
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", TEXT, flags=re.MULTILINE)) == available("scenarios")


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "file.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1.5e4", 1.5e4), ("-2E+3", -2e3), ("1.0e-5", 1e-5), ("12", 12), ("e5", "e5"), ("1e", "1e")],
)
def test_numbers_with_an_exponent_are_numbers(write, text: str, value: object) -> None:
    found = read_yaml(write(f"x: {text}\n")).content["x"]
    assert found == value
    assert type(found) is type(value)


@settings(max_examples=50)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_writes_is_read_back(tmp_path_factory, number: float) -> None:
    path = tmp_path_factory.mktemp("yaml") / "file.yaml"
    path.write_text(f"x: {number!r}\n")
    assert read_yaml(path).content["x"] == number


def test_each_key_has_its_line(write) -> None:
    file = read_yaml(write("# comment\na: 1\nb:\n  c: [1, 2]\n  d:\n  - e: 3\n  - f: 4\n"))
    assert file.line(("a",)) == 2
    assert file.line(("b", "c")) == 4
    assert file.line(("b", "d", 1, "f")) == 7
    assert file.line(("b", "d", 1, "missing")) == 7  # the nearest above
    assert file.line(("nowhere",)) == 2  # where the content begins


def test_a_key_given_twice_is_a_problem(write) -> None:
    assert read_yaml(write("a: 1\nb: 2\na: 3\n")).problems == ((("a",), "given twice, first in line 1"),)


def test_merged_keys_are_allowed(write) -> None:
    file = read_yaml(write("base: &b {x: 1}\narm:\n  <<: *b\n  y: 2\n"))
    assert file.content["arm"] == {"x": 1, "y": 2}
    assert file.problems == ()


# A few lines that stand for eight to the power of seven numbers.
BOMB = "x: &x [1,1,1,1,1,1,1,1]\n" + "".join(
    f"{key}: &{key} [{','.join([f'*{before}'] * 8)}]\n" for before, key in zip("xabcde", "abcdef", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", ["the file holds nothing"], id="empty"),
        pytest.param("- 1\n- 2\n", ["the file holds a list"], id="list"),
        pytest.param("just words\n", ["the file holds one value"], id="text"),
        pytest.param("a: [1\nb: 2\n", ["line 2", "not YAML"], id="open"),
        pytest.param("a: 1\n---\nb: 2\n", ["not YAML", "document"], id="two"),
        pytest.param("a: 2020-13-45\n", ["not YAML", "month"], id="date"),
        pytest.param("a: !!python/object/apply:os.system [ls]\n", ["not YAML", "python/object"], id="tag"),
        pytest.param("? [1, 2]\n: 3\n? {a: 1}\n: 4\n", ["not YAML", "key"], id="keys"),
        pytest.param(b"\xff\xfe\x00", ["cannot be read as text"], id="binary"),
        pytest.param(b"a: \x00\n", ["not YAML"], id="nul"),
        pytest.param("a: &a [*a]\n", ["too deep"], id="recursive"),
        pytest.param(BOMB, ["too large"], id="bomb"),
    ],
)
def test_what_is_no_mapping_is_refused_in_one_sentence(write, text: str | bytes, words: list[str]) -> None:
    path = write(text)
    with pytest.raises(InvalidInputError) as raised:
        read_yaml(path)
    assert str(path) in str(raised.value)
    assert [word for word in words if word not in str(raised.value)] == []
    assert "\n" not in str(raised.value)


def test_a_directory_a_missing_file_and_a_huge_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(InvalidInputError, match="No such file"):
        read_yaml(tmp_path / "missing.yaml")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_yaml(Path("a\0b.yaml"))
    (tmp_path / "huge.yaml").write_bytes(b"# " + b"x" * 2_000_000)
    with pytest.raises(InvalidInputError, match="2000002 bytes"):
        read_yaml(tmp_path / "huge.yaml")
