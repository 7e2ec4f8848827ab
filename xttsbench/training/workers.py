"""What the processes of one run have to agree on: where they begin, and whether they end."""

from __future__ import annotations

import tensorflow as tf

from xttsbench.training.strategy import Replicas, place


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
