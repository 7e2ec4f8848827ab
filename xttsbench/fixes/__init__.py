"""Fixes that make a step faster: each with its words, its edit of the record for prediction, and its rewrite.

A folder is a fix, or a family of them. The package itself is what the fix is, in data and words, free of TensorFlow, so
that the parent knows every fix; its ``rewrite`` changes the graph, or the step, and runs in the process that measures;
its ``patch`` edits the user's source.
"""
