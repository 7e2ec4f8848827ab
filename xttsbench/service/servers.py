"""The servers of TensorFlow's tf.data service, in the process that calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_HEARTBEAT_MS: Final = 5_000
"""Interval in which a worker asks the dispatcher what it need not hold any more; TensorFlow's own is 30 s."""
_CHECK_MS: Final = 10_000
"""Interval in which a dispatcher looks for clients that are gone; TensorFlow's own is ten minutes."""
_QUIET_MS: Final = 500
"""Time in which a worker that stops still answers its last requests."""


def dispatcher(
    port: int = 0, work_dir: str | None = None, workers: Sequence[str] = (), client_timeout_s: float = 120.0
) -> Any:
    """Start a dispatcher; ``bound_port()`` of the server that is returned says where.

    Args:
        port: to listen on, 0 for any that is free.
        work_dir: folder of the journal from which a dispatcher that is started anew goes on; ``None``: it forgets all.
        workers: addresses ``HOST:PORT`` of all workers, which the policies FILE and DATA need.
        client_timeout_s: silence after which a client counts as gone, and its epoch as over.
    """
    from tensorflow.core.protobuf import service_config_pb2
    from tensorflow.python.data.experimental.service import _pywrap_server_lib

    config = service_config_pb2.DispatcherConfig(
        port=port,
        protocol="grpc",
        work_dir=work_dir or "",
        fault_tolerant_mode=work_dir is not None,
        worker_addresses=workers,
        job_gc_check_interval_ms=_CHECK_MS,
        client_timeout_ms=round(1000 * client_timeout_s),
    )
    server = _pywrap_server_lib.TF_DATA_NewDispatchServer(config.SerializeToString())
    server.start()
    return server


def worker(dispatcher: str, port: int = 0, host: str = "localhost") -> Any:
    """Start a worker and register it; ``bound_port()`` of the server that is returned says where.

    Args:
        dispatcher: address ``HOST:PORT`` of the dispatcher; waits until that answers.
        port: to listen on, 0 for any that is free.
        host: name or address under which clients reach this machine.
    """
    from tensorflow.core.protobuf import service_config_pb2
    from tensorflow.python.data.experimental.service import _pywrap_server_lib

    config = service_config_pb2.WorkerConfig(
        port=port,
        protocol="grpc",
        heartbeat_interval_ms=_HEARTBEAT_MS,
        dispatcher_address=dispatcher,
        worker_address=f"{host}:%port%",
        data_transfer_address=f"{host}:%dts_port%",
        shutdown_quiet_period_ms=_QUIET_MS,
    )
    server = _pywrap_server_lib.TF_DATA_NewWorkerServer(config.SerializeToString())
    server.start()
    return server
