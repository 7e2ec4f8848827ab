import os
import sys

print(sorted((name, type(value).__name__) for name, value in globals().items()))
print(__file__, __name__, __spec__, __package__, __cached__, __loader__.name, __loader__.path, __builtins__.__name__)
print(sys.argv, sys.path, sys.flags, sys.orig_argv, sys.warnoptions, sys._xoptions)
print(sorted(name for name in os.environ if name != "_"), os.getcwd())
print(sys._getframe().f_back, sys.stdin.encoding, sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering)
print(sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getrecursionlimit(), sys.getprofile())
