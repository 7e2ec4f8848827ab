import time

for _ in range(3):
    try:
        time.sleep(0.1)
        raise SystemExit(2)
    except BaseException as error:
        print(repr(error))
