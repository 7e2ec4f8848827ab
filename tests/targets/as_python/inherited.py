import os
import sys

print(os.read(int(sys.argv[1]), 100))
