"""Batches put together several at a time."""
