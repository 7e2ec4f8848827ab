import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("files", nargs="*")
print(parser.parse_args())
parser.parse_args(["--epochs", "many"])
