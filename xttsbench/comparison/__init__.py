"""Comparison of sides: pairs of turns, evidence, figures, gates, a sweep's winner. Pure."""
