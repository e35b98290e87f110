"""Cutting planes: Algorithm 1 of Joachims (2006) and OCAS."""
