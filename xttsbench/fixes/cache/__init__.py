"""Elements kept from pass to pass, in memory (``cache``) or on disk (``cache-file``)."""
