"""The augmented Lagrangian of Nie et al. (2014): classes whose losses are powers of the slack."""
