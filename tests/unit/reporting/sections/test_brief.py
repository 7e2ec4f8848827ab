"""An examination on a terminal: what is broken first, its remedy below it, and nothing that a name can break."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.doctor.made import healthy, spoilt
from xttsbench.doctor import examine
from xttsbench.records.machine import Examination, Machine
from xttsbench.reporting import console
from xttsbench.reporting.document import View
from xttsbench.reporting.sections.brief import doctor_document


def made(machine: Machine) -> Examination:
    return Examination(command="xttsbench doctor", created_utc="2026-11-23", checks=examine(machine), machine=machine)


def shown(machine: Machine, view: View = View.SUMMARY) -> str:
    return console.render(doctor_document(made(machine)), width=100, color=False, view=view)


def test_a_healthy_machine_is_a_few_lines() -> None:
    assert shown(healthy(gpus=1)) == ("doctor  TensorFlow 2.21.0, 8 processors, 1 GPU\nNothing is broken: 15 checks.\n")


def test_what_is_broken_comes_first_with_its_remedy() -> None:
    machine = spoilt(healthy(), "processors", quota_cpus=1.0)
    lines = shown(machine).splitlines()
    assert lines[1] == "1 of 10 checks found something broken."
    assert lines[3].startswith("  BROKEN cpu-quota: the control group allows 1 of 8")
    assert next(line for line in lines if line.startswith("  →")).startswith("  → Set TF_NUM_INTRAOP_THREADS=1")
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  note")] == ["note gpu-driver"]


def test_the_screen_on_the_page_is_that_of_a_machine_that_lacks_a_library() -> None:
    machine = spoilt(healthy(gpus=2), "processors", machine_cpus=2, affinity_cpus=2)
    why = "cannot open shared object file: No such file or directory"
    threads = {"intra_op": 2, "inter_op": 2}
    machine = spoilt(machine, "sight", missing={"libcudnn.so.9": why}, gpus=(), threads=threads)
    page = Path(__file__).parents[4] / "docs" / "doctor.md"
    assert f"```text\n{shown(machine)}```" in page.read_text(encoding="utf-8")


def test_every_check_is_in_the_larger_view() -> None:
    text = shown(healthy(gpus=1), View.DETAILED)
    assert all(check.id in text for check in made(healthy(gpus=1)).checks)


@pytest.mark.parametrize("view", list(View))
def test_names_that_want_to_break_it_stay_text(view) -> None:
    nasty = "[red]x\x1b[31m\x00\n`y`"
    machine = spoilt(healthy(gpus=1), "software", variables={"CUDA_VISIBLE_DEVICES": nasty})
    machine = spoilt(machine, "sight", last_words=nasty, ended="killed by SIGSEGV", stage="import", computed=())
    text = shown(machine, view)
    assert "[red]x" in text
    assert not set(text) & {"\x1b", "\x00"}
