import faulthandler
import os
import signal
import sys

faulthandler.disable()
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
