"""Turns records into what a person reads: console, Markdown, HTML, plots, and the files of a run's directory.

Every exporter is a pure function of a :class:`~xttsbench.records.report.Report` (and of the trials, for the plots);
:mod:`xttsbench.reporting.page` alone touches files. The builders in :mod:`xttsbench.reporting.sections` decide what is
said, so the console, ``report.md`` and ``report.html`` say the same. Matplotlib is imported by
:mod:`xttsbench.reporting.plots` only, which nothing imports before the trials are over.
"""
