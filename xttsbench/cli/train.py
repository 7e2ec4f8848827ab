"""``xttsbench train [RECIPE] [--best [PATH]]``: train the bundled model with the configuration that won."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xttsbench.cli.scenario_options import AsJson, Data, Debug, Out, end

NEWEST: Final = "newest"
"""What ``--best`` stands for without a path."""


class Strategy(StrEnum):
    """How many devices train together."""

    one = "one"
    mirrored = "mirrored"
    multi_worker = "multi_worker"


def _off(name: str, what: str) -> Any:
    """A switch that is on, and has its negative on the command line alone."""
    return typer.Option(f"--{name}", help=f"For debugging: {what}.")


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (tiny, small, base), or a YAML file.")] = "tiny",
    best: Annotated[
        str | None,
        typer.Option(
            metavar="[PATH]",
            help="Take the configuration of the newest best.yaml under reports/, or of the named file or run.",
            show_default=False,
        ),
    ] = None,
    data: Data = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Updates of the weights (default: the recipe's).", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and dropout.")] = 0,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints (default: the recipe's).", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with the run that --out names, where it holds one.")
    ] = True,
    out: Out = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of best.yaml, or of the recipe with dots, such as optimizer.learning_rate=1e-3; repeatable.",
        ),
    ] = None,
    strategy: Annotated[Strategy, typer.Option(help="multi_worker reads the cluster from TF_CONFIG.")] = Strategy.one,
    accumulation: Annotated[
        int | None, typer.Option(min=1, help="Batches of a replica that make one update.", show_default=False)
    ] = None,
    input_workers: Annotated[
        int, typer.Option(min=0, help="Processes that make the batches in place of this one's threads.")
    ] = 0,
    device_memory_mb: Annotated[
        int | None, typer.Option(min=1, help="Limit on the memory of each GPU.", show_default=False)
    ] = None,
    logical_cpus: Annotated[
        int | None,
        typer.Option(min=1, help="CPU devices to divide the processor into, for --strategy.", show_default=False),
    ] = None,
    fit_memory: Annotated[
        bool, typer.Option("--fit-memory", help="Choose the largest tokens_per_batch that fits into memory.")
    ] = False,
    no_listening: Annotated[
        bool, typer.Option("--no-listening", help="Leave out letting the model speak at the end.")
    ] = False,
    accelerator: Annotated[
        str, typer.Option(help="real, or emulated:MS in place of the step, which then learns nothing.")
    ] = "real",
    no_native_loader: Annotated[bool, _off("no-native-loader", "make batches in Python, from the WAV files")] = False,
    no_device_prefetch: Annotated[bool, _off("no-device-prefetch", "copy no batch to the device ahead")] = False,
    no_overlap: Annotated[bool, _off("no-overlap", "make each batch when the step asks for it")] = False,
    no_graph: Annotated[bool, _off("no-graph", "run the step eagerly, op by op")] = False,
    no_xla: Annotated[bool, _off("no-xla", "compile the step with tf.function alone")] = False,
    no_bucketing: Annotated[bool, _off("no-bucketing", "pad all batches to the longest edge")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Train the bundled speech model; run again with the same --out it goes on from its last checkpoint.

    Exit code 0: done; 1: training failed (off course, out of memory, no checkpoint); 130: ended by a signal, with a
    checkpoint written.

    Example:  xttsbench train tiny --best --out reports/first
    """
    from xttsbench.cli.progress import Watched
    from xttsbench.cli.train_lines import TrainLines
    from xttsbench.execution.accelerator import parse_accelerator
    from xttsbench.workflows.train import train as run
    from xttsbench.workflows.train_job import TrainRequest

    request = TrainRequest(
        recipe=recipe,
        best=best is not None,
        best_path=Path(best) if best not in (None, NEWEST) else None,
        data=data,
        steps=steps,
        seed=seed,
        checkpoint_every=checkpoint_every,
        resume=resume,
        out=out,
        settings=dict(_setting(text) for text in settings or []),
        strategy=strategy.value,
        accumulation=accumulation,
        input_workers=input_workers,
        device_memory_mb=device_memory_mb,
        logical_cpus=logical_cpus,
        fit_memory=fit_memory,
        listen=not no_listening,
        accelerator=parse_accelerator(accelerator),
        native_loader=not no_native_loader,
        device_prefetch=not no_device_prefetch,
        overlap=not no_overlap,
        graph=not no_graph,
        xla=not no_xla,
        bucketing=not no_bucketing,
        print_to_stderr=as_json,
        command=" ".join(["xttsbench", *sys.argv[1:]]),
    )
    lines = TrainLines()
    with Watched() as making:
        outcome = run(request, progress=lines, data_progress=making)
    lines.close()
    end(outcome, as_json=as_json, debug=debug)


def _setting(text: str) -> tuple[str, object]:
    """``KEY=VALUE`` where the key may have dots."""
    from xttsbench.targets.spec import parse_setting

    key, separator, value = text.partition("=")
    sections = key.strip().split(".")
    if len(sections) == 1 or not separator or not all(section.isidentifier() for section in sections):
        return parse_setting(text)
    return key.strip(), parse_setting(f"{sections[-1]}={value}")[1]


def with_value_of_best(arguments: Sequence[str]) -> list[str]:
    """The command line with a value after each ``--best`` of ``train``: the parser knows no optional values.

    What follows is the value, unless it is an option or the name of a shipped recipe.
    """
    from xttsbench.shipped import available

    found: list[str] = []
    for index, argument in enumerate(arguments):
        found.append(argument)
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        if argument == "--best" and (following is None or following[:1] == "-" or following in available("training")):
            found[-1] = f"--best={NEWEST}"
    return found
