import runpy

from inner.values import value

print(value, __package__)
print(runpy.run_module("inner.values")["value"], runpy.run_path("inner/values.py", run_name="other")["__name__"])
from . import inner  # noqa: E402, F401
