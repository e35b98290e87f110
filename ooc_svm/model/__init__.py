"""What training gives: decision functions and their file."""
