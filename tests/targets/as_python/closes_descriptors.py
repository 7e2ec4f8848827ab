import os

os.closerange(3, 4096)
opened = [os.open(f"file{number}", os.O_RDWR | os.O_CREAT) for number in range(3)]
print(opened)
os.dup2(opened[0], 1000)
for descriptor in range(900, 1024):
    os.dup2(opened[1], descriptor)
