"""Whether two sets of elements are the same data: pure, on fingerprints, arrays and losses that others have read."""
