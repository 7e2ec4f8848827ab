"""A text spoken by a trained model, in a process of its own."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from xttsbench.errors import HelperError, InvalidInputError, UsageError
from xttsbench.execution.child import child_environment, start
from xttsbench.probes.nvml import open_gpus
from xttsbench.records.training import Synthesised, SynthesisJob
from xttsbench.xtts.data.metadata import SYMBOLS, encoded_length


def synthesise(
    checkpoint: Path, text: str, *, out: Path, speaker: str | None = None, reference: Path | None = None
) -> Synthesised:
    """Speak a text with a trained model, and write a WAV file.

    Args:
        checkpoint: a run's directory, its ``checkpoints/``, or a checkpoint.
        text: what to say; characters that the model does not know are left out.
        out: the file, written whole or not at all.
        speaker: one of the run's; without it and a reference the first.
        reference: a WAV file of the voice to speak with.

    Raises:
        UsageError: both a speaker and a reference are given, or the file is a directory or in none.
        InvalidInputError: nothing of the text is known, or the checkpoint, the speaker or the reference cannot be used.
    """
    if speaker is not None and reference is not None:
        raise UsageError(f"--speaker {speaker} and --reference {reference} both name a voice; give one of them")
    if not encoded_length(text):
        raise InvalidInputError(
            f"no character of {text!r} is known; write a text with some of {SYMBOLS!r}, in any case"
            if text.strip()
            else "the text is empty; write what to say"
        )
    if out.is_dir():
        raise UsageError(f"{out} is a directory; name the file to write: --out FILE.wav")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{out.absolute().parent} is no directory; make it, or name another file: --out FILE.wav")
    job = SynthesisJob(
        checkpoint=str(checkpoint.absolute()),
        text=text,
        speaker=speaker,
        reference=None if reference is None else str(reference.absolute()),
        out=str(out.absolute()),
    )
    return run_synthesis(job, has_gpu=open_gpus()[0] is not None)


def run_synthesis(job: SynthesisJob, *, has_gpu: bool = False) -> Synthesised:
    """Speak a text in a process of its own; ``has_gpu`` where the machine has an NVIDIA driver.

    Raises:
        InvalidInputError: the process refused the job, and said why.
        HelperError: it could not be started, or ended without a word.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = start(
                "xttsbench.worker.synthesize",
                theirs.fileno(),
                what="The process that speaks",
                environment=child_environment(has_gpu=has_gpu),
                print_to_stderr=True,
            )
        with process:
            try:
                ours.sendall(job.to_line().encode() + b"\n")
                with ours.makefile("r", encoding="utf-8") as lines:
                    line = lines.readline()
            except (BrokenPipeError, ConnectionResetError):
                line = ""
            except BaseException:
                process.kill()
                raise
    answer = json.loads(line) if line else {}
    if "error" in answer:
        raise InvalidInputError(answer["error"])
    if "done" not in answer:
        raise HelperError(
            f"The process that speaks ended with exit code {process.returncode} and said nothing; its own message is "
            "above."
        )
    return Synthesised.model_validate(answer["done"])
