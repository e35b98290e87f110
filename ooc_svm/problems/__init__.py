"""One problem a file: from labels to the models to be trained."""
