"""The process that trains: ``python -m xttsbench.worker.training FD``, told a job over the socket FD."""
