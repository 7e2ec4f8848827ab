"""``xttsbench run SCENARIO``: its arms against their baseline, and the report that says what they are worth."""
