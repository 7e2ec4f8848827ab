"""Declarative scenarios: YAML into a validated record, with every error named by line and key path at once."""
