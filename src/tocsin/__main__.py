"""`python -m tocsin` is the command line."""

from tocsin.cli import main

if __name__ == "__main__":
    main()
