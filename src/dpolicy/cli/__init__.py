"""The command line: reads arguments, calls the library, prints, and sets the exit code."""
