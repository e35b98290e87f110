"""The command line of the package, ``ooc-svm``."""

from ooc_svm.cli.app import main

__all__ = ["main"]
