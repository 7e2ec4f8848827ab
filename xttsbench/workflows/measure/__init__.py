"""The trials of a run: one after another or in turns, alone or as the arms of a comparison."""
