"""What rewrites share: reading and editing a graph, hazards that it shows, and a dataset with fixes by their names."""
