import sys

print(repr(sys.stdin.readline()), repr(input("? ")), sys.stdin.isatty())
sys.stdout.flush()
sys.stdout.buffer.write(b"\xff\x00bytes" + sys.stdin.buffer.read())
