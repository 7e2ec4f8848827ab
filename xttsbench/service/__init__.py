"""Dispatcher and workers of the tf.data service as processes: of a command, or of a cluster on this machine.

TensorFlow is imported in the processes that serve, and in no other. Its servers listen on all interfaces, without
encryption or passwords, whatever address they are told to give to others.
"""

from xttsbench.service.cluster import Cluster, loopback

__all__ = ["Cluster", "loopback"]
