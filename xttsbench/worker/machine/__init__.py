"""What this machine is asked from a process of its own, since a driver or library that is ill ends whoever asks."""
