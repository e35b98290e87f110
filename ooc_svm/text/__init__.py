"""SVMlight text: read, checked and written."""
