"""``buckets``: batches of elements of similar length, where the user says that other batches are welcome."""
