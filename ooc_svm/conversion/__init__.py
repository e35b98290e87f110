"""Text and matrices into stores."""
