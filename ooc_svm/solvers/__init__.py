"""One algorithm a file, as a generator of passes."""
