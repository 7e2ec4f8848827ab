"""Work on whole batches in place of single elements."""
