"""Sound: WAV files, sample rates, log-mel features, and synthetic speech. NumPy and SciPy only."""
