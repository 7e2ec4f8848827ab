"""From a scenario to its trials: arms, their order in seeded random blocks, and what each trial is told. Pure."""
