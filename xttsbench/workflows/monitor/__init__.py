"""``xttsbench monitor``: the machine and its GPUs while something runs, live and in a CSV, which can be read again."""
