"""What TensorFlow's profiler and a count of ops say of a step: the window in which it is profiled, its trace, XProf."""
