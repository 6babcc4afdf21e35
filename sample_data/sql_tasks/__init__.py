"""Makes the database tasks: every family of question in every schema, with rows that spring its trap or do not."""
