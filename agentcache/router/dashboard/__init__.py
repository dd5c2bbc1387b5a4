"""What a router shows an operator at `/dashboard`: sessions, workers, hit rates, a worker's tree, a session's turns."""
