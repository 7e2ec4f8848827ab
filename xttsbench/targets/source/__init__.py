"""The user's own source, read by LibCST and never run: which call made an op, and each fix as an edit of the text.

An edit replaces as little as it can, so that comments and layout of everything else stay byte for byte. Where no edit
can be made safely, the patch says what to write by hand, and where.
"""
