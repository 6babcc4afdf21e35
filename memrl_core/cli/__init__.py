"""The command line: `main` names the commands of `memrl`, the other modules have those of one subject each."""
