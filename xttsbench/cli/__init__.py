"""The command line: parse, call a workflow, render, exit code. Imports no TensorFlow, and at start-up little else."""

from xttsbench.cli.app import main

__all__ = ["main"]
