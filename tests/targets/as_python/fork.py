import os
import sys

print("before", flush=True)
child = os.fork()
if child == 0:
    print("in the child", flush=True)
    sys.exit(3)
_, status = os.waitpid(child, 0)
print("the child left with", os.waitstatus_to_exitcode(status))
