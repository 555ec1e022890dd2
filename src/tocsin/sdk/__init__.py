"""What talks to a Tocsin server: the clients, and the worker with the engine that it shares with the executor.

client ─────────> transport <───────── worker ──> engine ──> claims, slots, heartbeats, completions
"""
