"""Where the facts and the memories of a bank lie: the tables, the vectors, their rows and their addresses."""
