"""What people judged: queues, agreement, and what their rewards changed."""
