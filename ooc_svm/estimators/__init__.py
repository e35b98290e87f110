"""The estimators of scikit-learn's kind: `fit`, `predict` and `score` over the functions of the package."""
