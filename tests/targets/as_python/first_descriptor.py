import os

print(os.open("file", os.O_RDWR | os.O_CREAT), sorted(map(int, os.listdir("/proc/self/fd")))[:5])
