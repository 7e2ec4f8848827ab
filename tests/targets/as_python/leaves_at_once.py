import atexit
import os

atexit.register(print, "never")
print("written", flush=True)
print("lost in a buffer", end="")
os._exit(7)
