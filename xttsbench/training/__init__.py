"""The trainer: its step under a strategy, its loop, its checkpoints, and the actions that are handed in.

It trains the model of :mod:`xttsbench.xtts` and knows nothing of measuring: what watches it is an action.
"""
