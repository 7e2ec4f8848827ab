import locale
import os
import resource
import sys

print(resource.getrlimit(resource.RLIMIT_NOFILE), os.nice(0), os.umask(0o22), locale.getpreferredencoding())
print(len(os.sched_getaffinity(0)), os.environ.get("LC_ALL"), sys.getfilesystemencoding(), "ä€😀")
print("to standard error ä€\udc80".encode("utf-8", "surrogateescape"), file=sys.stderr)
