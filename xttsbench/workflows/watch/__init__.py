"""A run that goes on to its end, watched: by ``xttsbench watch``, by a Keras callback, or around a loop's data."""
