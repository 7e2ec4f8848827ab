"""What sides are worth against one another: pairs of turns, evidence, figures, gates, a sweep's winner. Pure."""
