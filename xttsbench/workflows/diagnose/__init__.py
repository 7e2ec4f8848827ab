"""``xttsbench diagnose``: why a step takes as long as it does, and the report that says so."""
