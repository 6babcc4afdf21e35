"""What people do in a bank: rate steps, change memories, undo, and what each of them may do."""
