"""One loss a file: value, cut, line search. Mathematics on scores, no data."""
