"""The questions a person can ask on the page Decision, a module a kind."""
