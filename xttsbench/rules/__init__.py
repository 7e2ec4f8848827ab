"""From evidence to findings and verdict: pure functions, one module per family of rules."""
