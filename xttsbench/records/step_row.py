"""One step as it is recorded: its columns in their only order, what they mean, and what stands for the unknown."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, get_type_hints


class StepRow(NamedTuple):
    """What is known of a step.

    Nanoseconds are integers of ``time.perf_counter_ns``. The wall time is ``pause_ns``, ``wait_ns``, ``step_ns``, and
    what a loop that is not ours does besides.
    """

    start_ns: Annotated[int, "perf_counter_ns at the start of the step (before next())"]
    wall_ns: Annotated[int, "from the end of the step before to the end of this one"]
    wait_ns: Annotated[int, "inside next(), iterator creation at an epoch's start included"] = 0
    step_ns: Annotated[int, "inside step(batch), synchronisation of the device and emulated wait included"] = 0
    device_ns: Annotated[int, "waiting for the device to finish after the step returned, part of step_ns"] = 0
    emulated_ns: Annotated[int, "the emulated accelerator's wait, part of step_ns"] = 0
    trace_ns: Annotated[int, "tracing of tf.functions, part of step_ns"] = 0
    traces: Annotated[int, "tf.function traces"] = 0
    xla_ns: Annotated[int, "XLA compilation, part of step_ns"] = 0
    xla_compiles: Annotated[int, "XLA compilations"] = 0
    sync_ns: Annotated[int, "device values fetched to Python (.numpy(), float()), part of step_ns"] = 0
    syncs: Annotated[int, "device values fetched to Python"] = 0
    gc_ns: Annotated[int, "Python garbage collection"] = 0
    calls: Annotated[int, "outermost calls of tf.functions"] = 0
    calls_ns: Annotated[int, "inside those calls, tracing and compilation included, part of step_ns"] = 0
    cpu_ns: Annotated[int, "processor time of the whole process"] = 0
    main_cpu_ns: Annotated[int, "processor time of the thread that runs the steps, part of cpu_ns"] = 0
    batch_size: Annotated[int, "first dimension of the batch"] = 0
    batch_elements: Annotated[int, "numbers in the batch, over all its tensors"] = 0
    shape_id: Annotated[int, "index of the batch's shape signature among those seen in the trial"] = 0
    epoch: Annotated[int, "how often the dataset was begun again"] = 0
    frames: Annotated[
        int, "frames of the batch with padding, over all its clips; 0 where the workload does not say"
    ] = 0
    pause_ns: Annotated[int, "the recorder's own work since the step before, part of wall_ns and of nothing else"] = 0
    batch: Annotated[int, "index of the batch in the order of its pass over the dataset; -1 where it is not known"] = -1
    round: Annotated[int, "number of the round (one turn of each side) of the step; 0 where there is one stretch"] = 0
    valid_frames: Annotated[int, "true frames of the batch, over all its clips; 0 where the workload does not say"] = 0


COLUMNS: Final[dict[str, str]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(StepRow, include_extras=True).items()
}
"""Column of a segment to its meaning, in the order of a row."""


def absent(column: str) -> int:
    """What a column holds where nothing is known, as in a journal from before it was kept."""
    return int(StepRow._field_defaults.get(column, 0))
