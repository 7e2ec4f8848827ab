import threading

threading.Thread(target=print, args=("in a thread",)).start()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
print("all have ended")
