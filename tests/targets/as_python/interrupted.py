import atexit
import time

atexit.register(print, "handlers run", flush=True)
print("ready", flush=True)
time.sleep(60)
