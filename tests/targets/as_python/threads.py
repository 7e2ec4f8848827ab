import threading
import time


def work():
    time.sleep(0.2)
    print("the thread ends after the main one", flush=True)


threading.Thread(target=work).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(threading.active_count(), flush=True)
