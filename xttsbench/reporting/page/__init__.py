"""What ``report.html`` alone has: its own order, the pipeline as a graph, fixes as cards, a time line.

The blocks of this package are data, like those of :mod:`xttsbench.reporting.document`; the templates draw them.
"""
