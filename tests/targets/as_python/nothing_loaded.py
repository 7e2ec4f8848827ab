import signal
import sys
import threading

print(sorted({"numpy", "tensorflow", "keras", "torch", "h5py"} & sys.modules.keys()))
print(threading.active_count(), threading.enumerate(), threading.excepthook is threading.__excepthook__)
print([(number.name, str(signal.getsignal(number))[:40]) for number in sorted(signal.valid_signals()) if number < 32])
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
