import sys

sys.exit("the reason")
