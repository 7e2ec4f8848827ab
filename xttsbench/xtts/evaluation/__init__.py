"""What a model has learnt, heard from outside: what it speaks from text alone is recognised, measured and drawn."""
