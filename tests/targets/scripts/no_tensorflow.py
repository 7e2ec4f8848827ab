"""Without TensorFlow: shows how a script is run. Usage: no_tensorflow.py WHAT."""

import json
import multiprocessing
import os
import signal
import sys
import time


def show():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.map(abs, [-3])
    told = {
        "argv": sys.argv,
        "name": __name__,
        "file": __file__,
        "path": sys.path[0],
        "stdin": sys.stdin.read(),
        "own": vars(sys.modules["__main__"]) is globals(),
        "spawned": spawned,
        "group": os.getpgrp(),
    }
    print(json.dumps(told))


def wait():
    print("waiting", flush=True)
    time.sleep(60)


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "show":
        show()
    elif what == "raise":
        raise ValueError("a value \x1b[31m of the script's")
    elif what == "exit":
        sys.exit(7)
    elif what == "handle":
        signal.signal(signal.SIGUSR1, lambda *_: (print("handled", flush=True), sys.exit(0)))
        wait()
    else:
        wait()
