"""Measures Tocsin on this machine. `python -m benchmarks --help` lists the cases; each prints one JSON line.

Payload 500 bytes, fsync on, every process on this machine. Ratios to a peer are measured in the same run, since absolute figures
move with the machine and the hour.
"""
