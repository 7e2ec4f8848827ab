"""``data precompute`` and ``data verify`` as a user calls them: what they print where, and their exit codes."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from xttsbench.cli.data import precompute, verify
from xttsbench.cli.shards import attach, shard
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.xtts.wav import write_wav

app = typer.Typer()
app.command("precompute")(precompute)
app.command("verify")(verify)
app.command("shard")(shard)
app.command("attach")(attach)


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    directory = tmp_path / "speech"
    (directory / "wavs").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(3):
        write_wav(directory / f"wavs/c{number}.wav", 0.1 * rng.normal(size=5000), 22050)
    (directory / "metadata.csv").write_text("".join(f"c{number}|words\n" for number in range(3)))
    return directory


@pytest.fixture
def call(speech: Path, tmp_path: Path):
    def run(command: str, *options: str) -> Result:
        return CliRunner().invoke(app, [command, "--data", str(speech), "--out", str(tmp_path / "root"), *options])

    return run


def test_precompute_says_what_it_made_and_where(call, tmp_path: Path) -> None:
    result = call("precompute")
    assert result.exit_code == 0
    where, what = result.stdout.splitlines()
    assert where.startswith(str(tmp_path / "root/features/speech-"))
    assert what.startswith("3 of 3 clips made in ")
    assert "features made: 3 of 3" in result.stderr
    again = json.loads(call("precompute", "--json").stdout)
    assert (again["made"], again["kept"], again["clips"], again["frames"]) == (0, 3, 3, 57)
    assert again["cache"] == where
    assert again["features"]["n_mels"] == 80


def test_verify_lists_mends_and_ends_with_its_code(call, tmp_path: Path, speech: Path) -> None:
    missing = call("verify")
    assert missing.exit_code == 1
    assert "stale-cache, 1: run 'xttsbench data verify --fix --data" in missing.stdout
    assert f"--out {tmp_path / 'root'}'" in missing.stdout
    call("precompute")
    good = call("verify")
    assert (good.exit_code, good.stdout.splitlines()[-1]) == (0, "nothing is wrong")
    (path,) = tmp_path.glob("root/features/*/*/npy/c1.npy")
    path.write_bytes(path.read_bytes()[:-1])
    bad = call("verify", "--json")
    assert bad.exit_code == 1
    (problem,) = json.loads(bad.stdout)["problems"]
    assert (problem["rule"], problem["clip"]) == ("corrupt-cache", "c1")
    fixed = call("verify", "--fix")
    assert fixed.exit_code == 0
    assert "mended, 1: 3 clips made again, 0 kept" in fixed.stdout
    assert "  corrupt-cache: c1: " in fixed.stdout
    assert fixed.stdout.splitlines()[-1] == "nothing is wrong"


def test_verify_says_where_it_keeps_what_it_replaces(call, tmp_path: Path) -> None:
    call("precompute")
    (path,) = tmp_path.glob("root/features/*/*/npy/c1.npy")
    path.write_bytes(b"damaged")
    fixed = call("verify", "--fix")
    (kept,) = tmp_path.glob("root/features/*/*.replaced/*")
    assert f"what was replaced is kept in {kept}\n" in fixed.stdout
    assert (kept / "npy/c1.npy").read_bytes() == b"damaged"
    again = call("verify", "--fix", "--json")
    assert (again.exit_code, json.loads(again.stdout)["replaced"]) == (0, None)
    assert list(tmp_path.glob("root/features/*/*.replaced/*")) == [kept]


def test_what_cannot_be_mended_is_listed_and_ends_with_1(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("precompute")
    (path,) = tmp_path.glob("root/features/*/*/npy/c1.npy")
    path.write_bytes(b"")

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refused)
    result = call("verify", "--fix")
    assert result.exit_code == 1
    assert "Could not be mended: the feature cache" in result.stderr
    assert "c1: cannot be read from the cache: npy/c1.npy" in result.stdout


def test_problems_of_the_data_set_remain_after_fix(call, speech: Path) -> None:
    with (speech / "metadata.csv").open("a") as file:
        file.write("../c0|words\n")
    result = call("verify", "--fix", "--json")
    record = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [problem["rule"] for problem in record["fixed"]] == ["stale-cache"]
    assert [problem["rule"] for problem in record["problems"]] == ["bad-metadata"]
    assert (record["clips"], record["usable"], record["made_again"]) == (4, 3, 3)
    (speech / "metadata.csv").write_text("../c0|words\n")
    result = call("verify")
    assert result.exit_code == 5
    assert "0 of 1 clip can be used" in result.stdout


def test_the_remedy_names_the_recipe(call, tmp_path: Path) -> None:
    from xttsbench.shipped import shipped

    recipe = tmp_path / "other.yaml"
    text = shipped("training", "tiny").read_text()
    recipe.write_text(text.replace("n_mels: 80", "n_mels: 40"))
    call("precompute")
    result = call("verify", "--recipe", str(recipe))
    assert result.exit_code == 1
    assert f"--recipe {recipe}" in result.stdout
    assert call("verify", "--recipe", str(recipe), "--fix").exit_code == 0


def test_what_is_no_data_set_or_recipe_is_one_error(call, speech: Path) -> None:
    result = call("precompute", "--recipe", "nope")
    assert isinstance(result.exception, InvalidInputError)
    (speech / "metadata.csv").unlink()
    for command in ("precompute", "verify"):
        result = call(command)
        assert isinstance(result.exception, InvalidInputError)
        assert "metadata.csv is missing" in str(result.exception)


def test_without_data_the_default_set_is_made_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xttsbench.xtts.data import make

    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path / "user"))
    monkeypatch.setattr(make, "DEFAULT_CLIPS", 4)
    monkeypatch.setattr(make, "DEFAULT_MAX_S", 1.2)
    result = CliRunner().invoke(app, ["precompute", "--json"])
    record = json.loads(result.stdout)
    assert record["made"] == 4
    assert Path(record["data"]).parent == tmp_path / "user"
    assert record["cache"].startswith(str(tmp_path / "user/features"))


def test_shards_are_written_kept_verified_and_attached(
    call, speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path / "cache"))
    shards = tmp_path / "root"
    assert call("shard").stdout.splitlines() == [str(shards), "3 clips in 1 shard; 1 written, 0 kept"]
    again = json.loads(call("shard", "--json").stdout)
    assert (again["clips"], again["shards"], again["made"], again["kept"]) == (3, 1, 0, 1)

    def verified(directory: Path, *options: str) -> Result:
        return CliRunner().invoke(app, ["verify", "--data", str(directory), *options])

    good = verified(shards)
    assert (good.exit_code, good.stdout.splitlines()[-1]) == (0, "nothing is wrong")
    assert isinstance(verified(shards, "--fix").exception, UsageError)
    pytest.importorskip("fsspec")
    attached = tmp_path / "attached"
    fetched = CliRunner().invoke(app, ["attach", f"file://{shards}", "--out", str(attached), "--in-flight", "5"])
    assert fetched.stdout.splitlines() == [str(attached), f"3 clips; read from file://{shards}, 5 requests at once"]
    content = bytearray((shards / "shard-00000.npy").read_bytes())
    content[500] ^= 1
    (shards / "shard-00000.npy").write_bytes(content)
    for directory, remedy in ((shards, "run 'xttsbench data shard' again"), (attached, "upload the file again")):
        bad = verified(directory)
        assert bad.exit_code == 1
        assert f"corrupt-cache, 1: {remedy}" in bad.stdout
        assert "shard-00000.npy has other bytes than were written, by its hash" in bad.stdout
