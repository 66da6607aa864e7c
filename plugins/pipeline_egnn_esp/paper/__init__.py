"""What only the page of the paper needs: studies of speed and of sharing, and their figures."""
