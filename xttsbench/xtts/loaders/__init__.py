"""Five ways to turn the same planned batches into the same tensors; they differ in speed alone.

Their names stand here, free of TensorFlow, for whoever prepares what they read.
"""

from typing import Final

LOADERS: Final = {
    "numpy_wav": "xttsbench.xtts.loaders.numpy_loaders:numpy_wav",
    "tf_wav": "xttsbench.xtts.loaders.tf_loaders:tf_wav",
    "numpy_cache": "xttsbench.xtts.loaders.numpy_loaders:numpy_cache",
    "tf_cache": "xttsbench.xtts.loaders.tf_loaders:tf_cache",
    "packed": "xttsbench.xtts.loaders.packed:packed",
}
"""Name of a loader to the function that makes it, imported when it is used."""
IN_PYTHON: Final = ("numpy_wav", "numpy_cache")
"""Loaders that call Python for each clip: what they do can be done in other processes."""
CACHED: Final = ("numpy_cache", "tf_cache", "packed")
"""Loaders that read the feature cache."""
KEEPING: Final = ("numpy_wav", "tf_wav", "numpy_cache", "tf_cache")
"""Loaders that can keep the features of a clip in memory; ``packed`` reads one file, which the system does keep."""
