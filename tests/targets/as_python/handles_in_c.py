import faulthandler
import os
import signal
import sys
import time

faulthandler.register(signal.SIGUSR1, file=sys.stdout, all_threads=False)
print("ready", flush=True)
seen = os.fstat(1).st_size
while os.fstat(1).st_size == seen:
    time.sleep(0.02)
