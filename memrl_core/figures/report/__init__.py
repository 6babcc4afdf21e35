"""What a person takes away: one HTML file of a step, a comparison or a picture that opens anywhere, offline."""
