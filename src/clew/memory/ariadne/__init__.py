"""Reading the database of Ariadne (distribution `arriadne`), another memory for agents."""

from clew.memory.ariadne.read import read_ariadne

__all__ = ["read_ariadne"]
