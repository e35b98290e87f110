"""``python -m ooc_svm.cli``: the command line without its script."""

from ooc_svm.cli import main

main()
