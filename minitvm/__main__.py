"""`python -m minitvm`: the command line."""

from minitvm.cli import main

main(prog_name="minitvm")
