from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xttsbench.records.report import Report
from xttsbench.reporting import html, plots, write
from xttsbench.reporting.groups import CAPTIONS
from xttsbench.reporting.scene import stage


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_everything_is_written_and_the_same_record_gives_the_same_bytes(tmp_path: Path, starving) -> None:
    assert write.write_run(tmp_path / "a", *starving) == ()
    assert write.write_run(tmp_path / "b", *starving) == ()
    first, second = files(tmp_path / "a"), files(tmp_path / "b")
    expected = {f"plots/{name}.{suffix}" for name in CAPTIONS for suffix in ("png", "svg")}
    assert set(first) == expected | {"report.json", "report.md", "report.html"}
    assert first == second
    for name in CAPTIONS:
        assert first[f"plots/{name}.png"].startswith(b"\x89PNG")
        assert b"</svg>" in first[f"plots/{name}.svg"]


def test_a_comparison_writes_its_plots_and_the_same_bytes_again(tmp_path: Path, comparing) -> None:
    assert write.write_run(tmp_path / "a", *comparing) == ()
    first = files(tmp_path / "a")
    groups = ("loaders-emulated-accelerator-10-ms-a-step", "modes-real-device")
    assert set(first) == {"report.json", "report.md", "report.html"} | {
        f"plots/{kind}-{group}.{suffix}" for kind in ("arms", "traces") for group in groups for suffix in ("png", "svg")
    }
    again = plots.draw_one(f"arms-{groups[0]}", stage(*comparing))
    assert (first[f"plots/arms-{groups[0]}.png"], first[f"plots/arms-{groups[0]}.svg"]) == (again.png, again.svg)


def test_a_plot_that_shows_nothing_is_on_no_page(tmp_path: Path, empty) -> None:
    assert write.write_run(tmp_path, *empty) == ()
    written = files(tmp_path)
    assert "plots/distribution.png" in written
    assert b"plots/" not in written["report.md"]
    assert b"<img" not in written["report.html"]


def test_hostile_arms_write_nothing_outside_the_directory(tmp_path: Path, hostile_arms) -> None:
    assert write.write_run(tmp_path / "deep" / "run", *hostile_arms) == ()
    written = {name for name in files(tmp_path) if not name.startswith("deep/run/")}
    assert written == set()
    plots = list((tmp_path / "deep" / "run" / "plots").iterdir())
    assert len(plots) == 8
    assert not [path for path in plots if path.suffix == ".svg" and b"<script" in path.read_bytes()]


def test_the_json_is_the_record_again(tmp_path: Path, hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_write_plots", lambda *_: {})
    write.write_run(tmp_path, *hostile)
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert list(Report.model_validate_json(text).model_dump()) == list(Report.model_fields)
    assert Report.model_validate_json(text).verdict == hostile.report.verdict


def test_a_plot_that_fails_costs_a_warning_only(tmp_path: Path, starving, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(scene: object) -> None:
        raise RuntimeError("no font")

    monkeypatch.setitem(plots.DRAWERS, "timeline", fail)
    warnings = write.write_run(tmp_path, *starving)
    assert warnings == ("plots/timeline was not drawn: RuntimeError: no font",)
    written = files(tmp_path)
    assert "plots/timeline.png" not in written
    assert {"report.json", "report.html", "plots/distribution.svg"} <= set(written)
    assert b"timeline.png" not in written["report.md"]


def test_a_page_that_fails_costs_a_warning_only(tmp_path: Path, empty, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise KeyError("template")

    monkeypatch.setattr(html, "render", fail)
    (warning,) = write.write_run(tmp_path, *empty)
    assert warning.startswith("report.html was not written: KeyError")
    assert {"report.json", "report.md"} <= set(files(tmp_path))


def test_importing_the_exporters_imports_neither_matplotlib_nor_tensorflow() -> None:
    code = (
        "import sys, xttsbench.reporting.write, xttsbench.reporting.console; "
        "print([name for name in ('matplotlib', 'tensorflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
