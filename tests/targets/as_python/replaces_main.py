import os
import sys

import __main__

__main__.added = 1
print(added, sys.modules["__main__"].__dict__ is globals())  # noqa: F821
sys.modules["__main__"] = os
sys.path.clear()
sys.meta_path.clear()
