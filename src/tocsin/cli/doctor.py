"""`tocsin doctor`: looks at an installation and says what is wrong with it and what to do."""



def doctor() -> None:
    """Look at an installation."""
