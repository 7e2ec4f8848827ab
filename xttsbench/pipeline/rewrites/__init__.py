"""Fixes as edits of a dataset's graph, one noun a module: functions ``GraphDef -> GraphDef`` that run nothing.

Each takes a graph as :func:`xttsbench.pipeline.graph.read_graph` gives it and returns an edited copy; what it is given
stays as it is. Nodes that are edited keep their names, added ones get names of their own, and order and options of the
pipeline are kept, except by the fix that gives up the order. A fix that would change nothing, or that does not fit,
raises :class:`xttsbench.errors.InvalidInputError`. :mod:`xttsbench.pipeline.rewrite` names them and applies them.
"""
