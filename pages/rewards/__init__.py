"""The screen Rewards."""
