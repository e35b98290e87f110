"""Four users, who come from elsewhere, at their first commands: each step as typed, and what it must give."""
