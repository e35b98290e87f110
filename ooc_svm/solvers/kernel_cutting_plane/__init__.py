"""Cutting planes for kernel models (Yajima and Kawasoe, figures 2 to 5)."""
