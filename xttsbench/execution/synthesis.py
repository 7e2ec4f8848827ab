"""A process that speaks a text, from the parent: started, told its job, and asked what became of it."""

from __future__ import annotations

import json
import socket

from xttsbench.errors import HelperError, InvalidInputError
from xttsbench.execution.child import child_environment, start
from xttsbench.records.training import Synthesised, SynthesisJob


def run_synthesis(job: SynthesisJob, *, has_gpu: bool = False) -> Synthesised:
    """Speak a text in a process of its own.

    Args:
        job: what it is told.
        has_gpu: whether the machine has an NVIDIA driver.

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
                session=False,
            )
        with process:
            try:
                ours.sendall(job.model_dump_json().encode() + b"\n")
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
