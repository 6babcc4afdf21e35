"""Many runs for one question, stored as ordinary runs of a bank."""
