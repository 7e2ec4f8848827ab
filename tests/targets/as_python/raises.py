import warnings


def inner(value):
    return 1 / value


warnings.warn("of the top level", stacklevel=2)
warnings.warn("of this line", stacklevel=1)
try:
    inner(0)
except ZeroDivisionError as error:
    raise RuntimeError("it came to that") from error
