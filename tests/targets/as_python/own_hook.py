import sys
import traceback


def hook(kind, value, place):
    print(kind.__name__, value, [frame.name for frame in traceback.extract_tb(place)])
    sys.exit(9)


sys.excepthook = hook
raise ValueError("for the hook")
