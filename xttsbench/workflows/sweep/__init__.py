"""``xttsbench sweep``: the fastest of many configurations, its report, and ``best.yaml``."""
