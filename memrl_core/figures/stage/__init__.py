"""The stage: one recorded step as a picture that plays in a browser, in the app and in a file of its own."""
