import os
import sys

os.mkdir("elsewhere")
os.chdir("elsewhere")
print(__file__, sys.argv[0], os.path.exists(__file__), sys.path[0])
with open("made.txt", "w") as file:
    file.write("here")
import beside  # noqa: E402, F401
