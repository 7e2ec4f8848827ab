"""What makes a step faster: each fix with its words, its edit of the record for prediction, and its rewrite.

A folder is a fix, or a family of them. What it is, in data and words, is free of TensorFlow, so that the parent knows
every fix; ``rewrite`` changes the graph, or the step, and runs in the process that measures.
"""
