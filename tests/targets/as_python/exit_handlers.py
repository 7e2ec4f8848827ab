import atexit
import sys

atexit.register(print, "registered first, runs last")
atexit.register(lambda: 1 / 0)
atexit.register(print, "registered last, runs first")
print(atexit._ncallbacks() > 0)
sys.exit(3)
