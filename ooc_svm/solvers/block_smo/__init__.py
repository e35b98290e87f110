"""Block SMO: kernels without a stored kernel matrix, one read of the data for thousands of steps."""
