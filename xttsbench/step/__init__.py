"""The training step: its modes, its traces and compilations, its host synchronisation, and where its time goes."""
