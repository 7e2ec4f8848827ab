"""``xttsbench compare A B``: two runs, or two arms of one, against one another, and the limits that B has to keep."""
