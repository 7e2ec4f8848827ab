"""Training: from the request to the job, a session in a process of its own, its progress and its report."""
