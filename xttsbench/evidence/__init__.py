"""What a run's trials show of a target, as rules, fixes and the diagnosis look at it. Pure."""
