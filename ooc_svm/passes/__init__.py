"""What a solver may ask of the data."""
