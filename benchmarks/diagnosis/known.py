"""The truth about each case of the corpus, as a table.

It is known because the costs in a case are made: a wait or a computation of so many milliseconds. The expectations are
about what the code does, not about what the toolkit says of it today.
"""

from __future__ import annotations

from cases import Case

INPUT = ("input",)
COMPUTE = ("compute",)
WAITS = "python-function|sequential-map|thread-pool"
LOCK = "python-function"
POOL_16 = ("parallel-map", "thread-pool:16")
NO_HELP = ("sequential-map", "thread-pool", "no-prefetch", "eager-step")
"""Rules whose remedy would not help Python that computes under the interpreter lock."""


def _python() -> tuple[Case, ...]:
    def case(name: str, ms: float | None, limiting: str, **more: object) -> Case:
        return Case(name, "python_inside", INPUT, (limiting,), accelerator_ms=ms, **more)  # type: ignore[arg-type]

    return (
        case("blocking_map", 8, WAITS, seen=("python-function",), fixes=POOL_16, not_limiting=("no-prefetch",)),
        case("gil_map_in_parallel", 4, LOCK, not_limiting=NO_HELP),
        case("gil_map_in_turn", 4, LOCK, not_limiting=NO_HELP),
        case(
            "releasing_map", 5, "sequential-map|python-function", fixes=("parallel-map",), not_limiting=("thread-pool",)
        ),
        case("py_function_of_tensors", 3, LOCK, not_limiting=("thread-pool", "no-prefetch")),
        case("generator_that_waits", 8, "python-function|input-bound", seen=("python-function",)),
        case(
            "generator_that_computes", 4, "python-function|input-bound", seen=("python-function",), not_limiting=NO_HELP
        ),
        case("a_call_for_each_row", 3, "per-element-overhead|python-function", fixes=("batch-first",)),
        case("pool_too_small", 5, "thread-pool", fixes=("thread-pool:32",), not_limiting=("sequential-map",)),
        case("waits_and_computes", 6, WAITS, seen=("python-function",), fixes=POOL_16),
        case("tokens_in_python", 3, LOCK, not_limiting=("thread-pool", "no-prefetch")),
        case("waits_before_a_real_step", None, WAITS, fixes=POOL_16, not_limiting=("no-prefetch", "launch-bound")),
    )


def _reading() -> tuple[Case, ...]:
    def case(name: str, ms: float, limiting: str, **more: object) -> Case:
        return Case(name, "reading", INPUT, (limiting,), accelerator_ms=ms, **more)  # type: ignore[arg-type]

    read = "sequential-read|python-function"
    return (
        case("npy_one_by_one", 8, WAITS + "|sequential-read", fixes=POOL_16),
        case("npy_by_generator", 8, read + "|input-bound", seen=("python-function",)),
        case("npy_cut_at_128", 8, WAITS + "|sequential-read", seen=("fixed-npy-header",), fixes=POOL_16),
        case("interleave_in_turn", 6, read, seen=("sequential-read",), fixes=("parallel-interleave",)),
        case("file_after_file", 6, read, seen=("sequential-read",), any_order=True, compare_with={"epochs": 1}),
        case("unpacked_in_turn", 4, read, seen=("sequential-read",), fixes=("parallel-interleave",)),
        case("decoded_in_turn", 8, WAITS, fixes=POOL_16, not_limiting=("sequential-read",)),
        case("header_read_by_everyone", 8, WAITS, seen=("python-function",), not_limiting=("sequential-read",)),
    )


def _shaping() -> tuple[Case, ...]:
    def case(name: str, ms: float | None, limiting: tuple[str, ...], **more: object) -> Case:
        bottlenecks = more.pop("bottlenecks", INPUT)
        return Case(name, "shaping", bottlenecks, limiting, accelerator_ms=ms, **more)  # type: ignore[arg-type]

    kept = ("cacheable|cache-misuse|python-function",)
    cache = ("cache@",)
    return (
        case("no_prefetch", 10, ("no-prefetch",), fixes=("prefetch",), not_limiting=("thread-pool",)),
        case("prefetch_before_the_work", 10, ("no-prefetch",), fixes=("prefetch",)),
        case("never_cached", 4, kept, seen=("cacheable",), fixes=cache, not_limiting=NO_HELP),
        case("cached_too_early", 4, kept, seen=("cacheable|cache-misuse",), fixes=cache, not_limiting=NO_HELP),
        case("cache_never_filled", 4, kept, seen=("cache-misuse",), not_limiting=NO_HELP),
        case(
            "cacheable_before_augmentation",
            4,
            kept,
            seen=("cacheable",),
            fixes=cache,
            not_limiting=NO_HELP,
            compare_with={"augment": False},
        ),
        case("late_filter", 4, ("late-filter|python-function",), seen=("late-filter",)),
        case(
            "shuffle_stalls_each_epoch", 10, (WAITS + "|shuffle-fill|stragglers|oscillation",), seen=("shuffle-fill",)
        ),
        case(
            "tiny_elements",
            3,
            ("per-element-overhead|sequential-map",),
            seen=("per-element-overhead",),
            fixes=("batch-first",),
        ),
        case("taken_apart_and_put_together", 3, ("per-element-overhead|input-bound",)),
        case(
            "waits_for_the_slowest",
            8,
            ("order-sensitive|python-function",),
            seen=("order-sensitive",),
            any_order=True,
            compare_with={"count": 64},
            not_limiting=("thread-pool", "sequential-map"),
        ),
        case("stumbles", 8, ("stragglers|" + WAITS,), seen=("stragglers",)),
        case("comes_in_bursts", 6, ("input-bound|stragglers|oscillation|" + WAITS,), seen=("oscillation|stragglers",)),
        case("prefetches_everywhere", 8, (WAITS,), seen=("redundant-prefetch",), fixes=POOL_16),
        case(
            "heavy_ops_in_turn",
            5,
            ("sequential-map|input-bound",),
            fixes=("parallel-map",),
            compare_with={"random": False},
            not_limiting=("python-function", "thread-pool"),
        ),
        case(
            "padded_to_the_longest",
            None,
            (),
            bottlenecks=COMPUTE,
            seen=("padding-waste",),
            any_order=True,
            compare_with={"count": 128},
        ),
        case("waits_between_epochs", 8, ("python-function|stragglers|oscillation|cacheable|input-bound",), fixes=cache),
        case("no_prefetch_before_a_real_step", None, ("no-prefetch",), fixes=("prefetch",)),
    )


def _steps() -> tuple[Case, ...]:
    def case(name: str, bottleneck: str, limiting: str, **more: object) -> Case:
        asked = (limiting,) if limiting else ()
        return Case(name, "steps", tuple(bottleneck.split("|")), asked, **more)  # type: ignore[arg-type]

    return (
        case("eager_training", "dispatch", "eager-step"),
        case("eager_and_reads_its_loss", "dispatch", "eager-step", seen=("host-sync",)),
        case("python_number_as_argument", "compile", "retracing"),
        case("function_made_anew", "compile", "retracing"),
        case("traced_for_every_length", "compile", "retracing|dynamic-shape", seen=("dynamic-shape",)),
        case("compiled_for_every_length", "compile", "xla-recompilation|dynamic-shape", seen=("xla-recompilation",)),
        case("logs_every_step", "host", "host-sync|host-stall"),
        case("saves_every_tenth", "host", "host-stall"),
        case("collects_garbage", "host", "host-stall"),
        case("sums_its_history", "host", "host-stall|host-sync|drift", seen=("drift",)),
        case("python_inside_the_step", "compute|host", "", seen=("python-function-in-step",)),
        case("chain_that_xla_fuses", "compute", "", seen=("xla-untried",)),
        case("keras_run_eagerly", "dispatch", "eager-step"),
    )


def _combined() -> tuple[Case, ...]:
    def case(name: str, bottlenecks: tuple[str, ...], ms: float | None, *limiting: str, **more: object) -> Case:
        return Case(name, "combined", bottlenecks, limiting, accelerator_ms=ms, **more)  # type: ignore[arg-type]

    return (
        case(
            "slow_input_before_an_eager_step",
            INPUT,
            None,
            WAITS,
            seen=("eager-step",),
            fixes=POOL_16,
            not_limiting=("eager-step",),
        ),
        case("slow_input_and_eager_step", INPUT, None, WAITS, seen=("eager-step",)),
        case(
            "filters_late_and_in_turn",
            INPUT,
            8,
            "late-filter|" + WAITS,
            seen=("late-filter",),
        ),
        case(
            "everything_in_turn",
            INPUT,
            8,
            "sequential-read|no-prefetch|" + WAITS,
            seen=("sequential-read",),
            fixes=("parallel-interleave", "prefetch"),
        ),
        case("two_slow_maps", INPUT, 8, WAITS, fixes=("parallel-map", "thread-pool:32")),
        case(
            "small_pool_and_prefetches",
            INPUT,
            6,
            "thread-pool",
            seen=("redundant-prefetch",),
            fixes=("thread-pool:16",),
        ),
        case("not_cached_and_in_turn", INPUT, 6, "cacheable|" + WAITS, seen=("cacheable",), fixes=("cache@",)),
        case(
            "computes_on_all_cores",
            ("input", "contention"),
            None,
            "python-function|core-contention|cacheable|input-bound",
            fixes=("cache@",),
        ),
        case("stalls_in_step_and_input", INPUT, None, WAITS, "host-stall"),
    )


def _healthy() -> tuple[Case, ...]:
    with_device = {
        "python_that_keeps_up": 20,
        "lock_that_nobody_misses": 20,
        "generator_that_keeps_up": 15,
        "no_prefetch_needed": 10,
        "files_in_turn_behind_a_slow_device": 15,
        "big_shuffle_of_ids": 10,
        "prefetches_that_do_no_harm": 10,
        "late_filter_of_cheap_rows": 10,
        "not_cached_and_not_missed": 15,
        "padding_that_costs_nothing": 10,
    }
    own = (
        "map_in_turn_behind_a_slow_step",
        "compiled_and_prefetched",
        "saves_seldom",
        "eager_and_long",
        "keras_in_memory",
    )
    return (
        *(Case(name, "healthy", COMPUTE, accelerator_ms=float(ms), healthy=True) for name, ms in with_device.items()),
        *(Case(name, "healthy", COMPUTE, healthy=True) for name in own),
    )


CASES: tuple[Case, ...] = (*_python(), *_reading(), *_shaping(), *_steps(), *_combined(), *_healthy())
