"""What every adapter of a port must do: written once, run on each of them."""
