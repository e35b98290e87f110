"""One loss a file: values, slopes, conjugates and dual steps."""
