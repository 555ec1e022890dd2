"""The rules, pure: no store, no network, no clock; time and chance come in as arguments."""
