"""The tree of another revision: whole, beside the user's, and gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.targets.checkout import enter
from xttsbench.workflows.prove.revisions import divided, require_own, version

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(folder: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", folder, *named, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose file and helper were changed since ``main``, one of them in the index, with data beside it."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for file, text in (("src/train.py", "old"), ("src/helper.py", "old"), (".gitignore", "data/\n")):
        (folder / file).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    for file in ("src/train.py", "src/helper.py"):
        (folder / file).write_text("new")
    git(folder, "add", "src/helper.py")
    (folder / "data").mkdir()
    (folder / "data" / "rows").write_text("many")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train.py@main", ("train.py", "main")),
        ("data.py:make@feature/x~2", ("data.py:make", "feature/x~2")),
        ("pkg.data:make@v1", ("pkg.data:make", "v1")),
        ("a@b/train.py:make@v1", ("a@b/train.py:make", "v1")),
        ("train.py", ("train.py", None)),
        ("a@b/train.py:make", ("a@b/train.py:make", None)),
        ("@main", ("@main", None)),
    ],
)
def test_a_revision_follows_the_last_at_sign_that_is_no_paths_own(text, parts, tmp_path, monkeypatch) -> None:
    (tmp_path / "a@b").mkdir()
    (tmp_path / "a@b" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert divided(text) == parts


def test_the_whole_tree_of_a_revision_is_there_and_nothing_of_the_users_changes(project: Path) -> None:
    before = git(project, "status", "--porcelain"), (project / ".git" / "index").read_bytes()
    with version("src/train.py:make@main") as (target, checkout):
        assert checkout is not None
        file, _, attribute = target.partition(":")
        assert (attribute, Path(file).read_text()) == ("make", "old")
        assert Path(file).with_name("helper.py").read_text() == "old", "not that of the index, nor of the work tree"
        assert Path(checkout.folder, "data", "rows").read_text() == "many", "what git does not track is found, too"
        assert Path(checkout.tree) == Path(checkout.folder)
    assert not Path(checkout.tree).exists()
    assert (git(project, "status", "--porcelain"), (project / ".git" / "index").read_bytes()) == before
    assert git(project, "worktree", "list").count("\n") == 1
    assert (project / "data" / "rows").read_text() == "many"


@pytest.mark.parametrize(
    ("target", "revision", "said"),
    [("src/train.py", "nowhere", "does not find nowhere"), ("src/other.py", "main", "has no file 'other.py'")],
)
def test_a_revision_or_a_file_that_is_not_there_is_named(project, target, revision, said) -> None:
    with pytest.raises(UsageError, match=said), version(f"{target}@{revision}"):
        pass


def test_a_file_outside_of_any_repository_has_no_revision(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match="in a repository"), version("train.py@main"):
        pass


def test_imports_go_to_the_tree_but_for_what_git_does_not_track(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [str(project / "src"), str(project / "data"), "/elsewhere"]
    monkeypatch.setattr(sys, "path", list(given))
    with version("src/train.py@main") as (_, checkout):
        assert checkout is not None
        enter(checkout)
        assert sys.path == [str(Path(checkout.tree, "src")), given[1], given[2]]
        assert Path.cwd() == Path(checkout.folder)
        monkeypatch.chdir(project)


def test_a_version_that_imports_from_the_work_tree_is_refused(project: Path) -> None:
    with version("src/train.py@main") as (_, checkout):
        assert checkout is not None
        own = (str(project / "data" / "made.py"), f"{checkout.tree}/src/train.py", "/elsewhere.py")
        require_own(own, checkout, "src/train.py@main")
        with pytest.raises(InvalidInputError, match=r"imports src/helper\.py from the work tree"):
            require_own((str(project / "src" / "helper.py"),), checkout, "src/train.py@main")
