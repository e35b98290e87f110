"""Sequential minimal optimization (Platt 1998), its pass over all rows being a read of the data."""
