"""What fixes there are, what each is expected to give, and which are worth verifying."""
