"""The only place that chains stages: from a request to a run's directory with its report."""
