"""What samples cost, and how the work of a step is shared between ranks."""
