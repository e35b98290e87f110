"""One call that puts data, problem, solver and engine together."""
