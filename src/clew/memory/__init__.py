"""Memory for agents: remember, recall, forget, on the same engine as everything else."""

from clew.memory.memory import AsyncMemory, Memory
from clew.memory.record import Recalled, Recollection, Remembered, WorkingMemory

__all__ = ["AsyncMemory", "Memory", "Recalled", "Recollection", "Remembered", "WorkingMemory"]
