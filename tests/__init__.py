"""Tocsin's tests. They are a package so that one test module can import the helpers of another by their full name."""
