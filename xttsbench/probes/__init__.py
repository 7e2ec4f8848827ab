"""Readings from outside the measured code: host, GPU, quota, environment, and the emulated accelerator's clock.

The parent runs these beside a child that it watches, so nothing here imports TensorFlow or starts a thread, and what
cannot be read is empty with a reason, never 0.
"""
