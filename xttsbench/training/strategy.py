"""Which devices train together, where this process's replicas stand among all, and what its processes agree on."""

from __future__ import annotations

from typing import Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import STRATEGIES

_CLUSTER: Final = "TF_CONFIG"


def make_strategy(kind: str) -> tf.distribute.Strategy:
    """Return the strategy of a kind, over the GPUs of this process, or its logical CPUs where there is none.

    Args:
        kind: ``one`` (the first device), ``mirrored`` (all devices of this process) or ``multi_worker`` (all of the
            processes that ``TF_CONFIG`` names, which all have to be started; it waits for them, and has to be made
            before TensorFlow has looked at its devices).

    Raises:
        InvalidInputError: the kind is unknown, or ``multi_worker`` has no cluster in ``TF_CONFIG``.
    """
    if kind == "one":
        return tf.distribute.OneDeviceStrategy(_devices()[0])
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(_devices())
    if kind == "multi_worker":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if not resolver.cluster_spec().jobs:
            raise InvalidInputError(
                f"strategy: multi_worker needs the addresses of all processes in {_CLUSTER}, and it names none; "
                'set it to {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
            )
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    raise InvalidInputError(f"strategy: one of {', '.join(STRATEGIES)} is expected, got {kind!r}")


class Replicas:
    """The replicas of a strategy.

    Attributes:
        count: of all processes.
        local: device of each replica of this process, in their order.
        first_local: place of this process's first replica in the order of all.
        is_chief: whether this process is the one that writes for all.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.count: int = strategy.num_replicas_in_sync
        self.local: tuple[str, ...] = tuple(strategy.extended.worker_devices)
        places = strategy.experimental_local_results(strategy.run(_place_on_device))
        self.first_local = int(places[0])
        self.is_chief = self.first_local == 0


def place() -> int:
    """Return where the replica whose step is being traced or run stands in the order of all."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


@tf.function(autograph=False)
def _place_on_device() -> tf.Tensor:
    return tf.identity(tf.distribute.get_replica_context().replica_id_in_sync_group)


def _devices() -> list[str]:
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


class Workers:
    """The processes of a run; most runs have one, which agrees with itself and waits for nobody.

    Attributes:
        is_chief: whether this is the one that writes.
        are_several: whether there are others.
    """

    def __init__(self, strategy: tf.distribute.Strategy, replicas: Replicas) -> None:
        """Take the processes that a strategy spans, and its replicas."""
        self.is_chief, self.are_several = replicas.is_chief, replicas.count > len(replicas.local)
        self._strategy, self._replicas = strategy, replicas
        self._gather = tf.function(self._gathered, autograph=False)

    def gather(self, value: float) -> list[float]:
        """Return what each process gave, the chief's first; waits until all of them have given theirs."""
        if not self.are_several:
            return [value]
        everywhere = self._gather(tf.constant(value, tf.float64))
        gathered: list[float] = self._strategy.experimental_local_results(everywhere)[0].numpy().tolist()
        return gathered[:: len(self._replicas.local)]

    def _gathered(self, value: tf.Tensor) -> tf.Tensor:
        return self._strategy.run(self._all_of_replicas, args=(value,))

    def _all_of_replicas(self, value: tf.Tensor) -> tf.Tensor:
        """Return ``[replicas]``: a sum of vectors that have one replica's value each, and 0 else."""
        own = tf.pad(value[None], [[place(), self._replicas.count - 1 - place()]])
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)
