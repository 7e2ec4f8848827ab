"""Statistics on the samples: steady state, intervals, oscillation, stragglers, decisions. Pure; NumPy and SciPy."""
