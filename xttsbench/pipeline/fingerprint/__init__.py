"""Which elements a dataset yields, as hashes and sketches, and which dataset it is, in whatever process it is made."""
