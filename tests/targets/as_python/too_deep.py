import inspect
import sys


def deeper(depth):
    global reached
    reached = depth
    deeper(depth + 1)


print(len(inspect.stack()))
sys.setrecursionlimit(200)
try:
    deeper(0)
except RecursionError as error:
    print(error, reached)
