"""The HTTP worker: one engine behind an OpenAI-compatible API and a sessions API."""
