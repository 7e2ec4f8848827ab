"""``optimize``: fixes proposed, verified and written down, in processes of their own or in the caller's."""
