"""Recorded agent sessions, replayed against a running worker: readers, client, run, report, and the demo."""
