"""What an experiment found: tables and pictures for a terminal, a page and Markdown."""
