import signal
import sys
import time


def handle(number, frame):
    print(signal.Signals(number).name, frame.f_code.co_name, flush=True)
    sys.exit(0 if number == signal.SIGUSR1 else 4)


for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2):
    signal.signal(number, handle)
print("ready", flush=True)
time.sleep(60)
