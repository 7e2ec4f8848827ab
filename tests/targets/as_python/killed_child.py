import multiprocessing
import os
import signal
import time

if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    os.kill(process.pid, signal.SIGUSR1)
    process.join()
    print(process.exitcode)
