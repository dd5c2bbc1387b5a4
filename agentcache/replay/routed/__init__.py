"""Traces replayed through a router and its workers, in the trace's time or on a clock that jumps."""
