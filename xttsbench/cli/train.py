"""``xttsbench train [RECIPE] [--best [PATH]]``: the bundled model learns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xttsbench.cli.options import Data, asked, names, shared
from xttsbench.cli.output import Watched as DataWatched
from xttsbench.cli.output import end, printable, write_line

if TYPE_CHECKING:
    from xttsbench.records.training import Begun, Evaluated, Interval, Spoken, Watched


NEWEST: Final = "newest"
"""Value of ``--best`` without a path."""
_SWITCHES: Final = ("native_loader", "device_prefetch", "overlap", "graph", "xla", "bucketing")


class Strategy(StrEnum):
    """Strategy of training on one or several devices."""

    one = "one"
    mirrored = "mirrored"
    multi_worker = "multi_worker"


def _off(name: str, what: str) -> Any:
    """A switch that is on, and has its negative on the command line alone."""
    return typer.Option(f"--{name}", help=f"For debugging: {what}.")


@shared("out", "redact", "browse", "verbose", "quiet", "as_json", "debug")
def train(
    context: typer.Context,
    recipe: Annotated[
        str,
        typer.Argument(help="A shipped recipe (tiny, small, base), or a YAML file.", autocompletion=names("training")),
    ] = "tiny",
    best: Annotated[
        str | None,
        typer.Option(
            metavar="[PATH]",
            help="Take the configuration of a best.yaml: of the run under reports/ whose name is the last, or of the "
            "named file or run.",
        ),
    ] = None,
    data: Data = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates of the weights (default: the recipe's).")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and dropout.")] = 0,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints (default: the recipe's).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with the run that --out names, where it holds one.")
    ] = True,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of best.yaml, or of the recipe with dots, such as optimizer.learning_rate=1e-3; repeatable.",
        ),
    ] = None,
    strategy: Annotated[
        Strategy,
        typer.Option(help="One device, mirrored devices, or several workers, which TF_CONFIG or Slurm's step names."),
    ] = Strategy.one,
    accumulation: Annotated[int | None, typer.Option(min=1, help="Batches of a replica that make one update.")] = None,
    input_workers: Annotated[
        int, typer.Option(min=0, help="Processes that run the Python of numpy_wav or numpy_cache; 0 for none.")
    ] = 0,
    device_memory_mb: Annotated[int | None, typer.Option(min=1, help="Limit on the memory of each GPU.")] = None,
    logical_cpus: Annotated[
        int | None, typer.Option(min=1, help="CPU devices to divide the processor into, for --strategy.")
    ] = None,
    no_listening: Annotated[
        bool, typer.Option("--no-listening", help="Do not let the model speak at the end.")
    ] = False,
    accelerator: Annotated[
        str, typer.Option(help="real, or emulated:MS or emulated:FILE in place of the step, which then learns nothing.")
    ] = "real",
    no_native_loader: Annotated[bool, _off("no-native-loader", "make batches in Python, from the WAV files")] = False,
    no_device_prefetch: Annotated[bool, _off("no-device-prefetch", "copy no batch to the device ahead")] = False,
    no_overlap: Annotated[bool, _off("no-overlap", "make each batch when the step asks for it")] = False,
    no_graph: Annotated[bool, _off("no-graph", "run the step eagerly, op by op")] = False,
    no_xla: Annotated[bool, _off("no-xla", "compile the step with tf.function alone")] = False,
    no_bucketing: Annotated[bool, _off("no-bucketing", "pad all batches to one length")] = False,
) -> None:
    """Train the bundled speech model; run again with the same --out it resumes from its last checkpoint.

    Exit code 0: done; 1: training failed (off course, out of memory, no checkpoint, another worker gone); 130: ended
    by Ctrl-C (129 by SIGHUP, 143 by SIGTERM).

    Example:  xttsbench train tiny --best --out reports/trained
    """
    from xttsbench.execution.accelerator import parse_accelerator
    from xttsbench.workflows.bundled import TrainRequest
    from xttsbench.workflows.train import train as run

    request = asked(
        context,
        TrainRequest,
        best=best is not None,
        best_path=Path(best) if best not in (None, NEWEST) else None,
        settings=dict(_setting(text) for text in settings or []),
        strategy=strategy.value,
        listen=not no_listening,
        accelerator=parse_accelerator(accelerator),
        **{name: not context.params[f"no_{name}"] for name in _SWITCHES},
    )
    lines = TrainLines(quiet=context.params["quiet"])
    with DataWatched() as making:
        outcome = run(request, progress=lines, data_progress=making)
    lines.close()
    end(outcome, context)


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


_PHASES: Final = {
    "setup": "starting TensorFlow, reading the data, building the model",
    "joining": "waiting until all workers have started",
    "listening": "letting the model speak",
    "warm_up": "taking a step of each shape of batches, so that all is compiled",
}


class TrainLines:
    """Draws what :class:`xttsbench.workflows.train.TrainProgress` says."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._told_time = False
        self._learns = True

    def phase(self, name: str) -> None:
        """Say what takes its time now."""
        if name in _PHASES:
            self._write(f"{_PHASES[name]} ...", final=not self._terminal)

    def begun(self, begun: Begun) -> None:
        """The effective batch, and where the run stands."""
        self._learns = begun.learns
        clips, parts = begun.clips_per_update, begun.accumulation * begun.replicas
        batch = (
            f"effective batch: {_count(clips)} clips = {_count(clips / parts)} x {begun.accumulation} accumulated x "
            f"{begun.replicas} replica{'' if begun.replicas == 1 else 's'}"
        )
        self._write(
            f"{begun.parameters / 1e6:.2f} M parameters; {batch}; {begun.updates_per_epoch} updates an epoch of "
            f"{begun.clips} clips",
            final=True,
        )
        if begun.step:
            self._write(f"going on after step {begun.step} of {begun.steps}", final=True)

    def interval(self, interval: Interval, watched: Watched, steps: int, left_s: float) -> None:
        """Step, loss, speed, waiting, time left."""
        from xttsbench.reporting.units import duration

        last = interval.first_step + interval.steps - 1
        if not self._told_time and last < steps:
            self._told_time = True
            self._write(f"expected: the other {steps - last:,} steps in about {duration(left_s)}", final=True)
        loss = "no step was applied" if interval.loss is None else f"loss {interval.loss:.4f}"
        loss = loss if self._learns else "nothing is learnt"
        rate, waits = watched.valid_frames / watched.wall_s, watched.wait_s / watched.wall_s
        left = f", {duration(left_s)} left" if last < steps else ""
        self._write(
            f"step {last:,} of {steps:,}: {loss}, {rate:,.0f} valid frames/s, {waits:.1%} waiting{left}",
            final=not self._terminal,
        )

    def evaluated(self, evaluated: Evaluated) -> None:
        """The held-out loss."""
        best = ", the lowest so far" if evaluated.best else ""
        self._write(f"step {evaluated.step:,}: held-out loss {evaluated.loss:.4f}{best}", final=True)

    def spoken(self, spoken: Spoken) -> None:
        """Prints the metrics of speech, a line for held-out and one for training texts."""
        groups: dict[str, list[str]] = {}
        for name, value in spoken.metrics.items():
            group, _, what = name.rpartition("/")
            if value is not None:
                groups.setdefault(group, []).append(f"{what.replace('_', ' ')} {value:.3g}")
        for group, told in groups.items():
            self._write(f"speech of {group.replace('_', '-')} texts: {', '.join(told)}", final=True)

    def say(self, sentence: str) -> None:
        """A line of its own."""
        self._write(sentence, final=True)

    def close(self) -> None:
        """Leave the last line standing."""
        if self._terminal and not self._quiet:
            sys.stderr.write("\n")

    def _write(self, text: str, *, final: bool) -> None:
        if not self._quiet:
            write_line(printable(text), terminal=self._terminal, final=final)


def _count(number: float) -> str:
    """Means of a token budget have a decimal, whole numbers none."""
    return f"{number:g}" if float(number).is_integer() else f"{number:.1f}"
