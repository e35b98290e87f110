"""Memory, threads, signals, files and folders: what the package needs of the machine."""
