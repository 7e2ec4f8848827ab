import os
import sys

print(ascii(sys.argv[1:]), ascii(os.fsencode(sys.argv[1])))
with open(sys.argv[1], "wb") as file:
    file.write(b"kept")
raise ValueError(sys.argv[1])
