"""Memory for agents: remember, recall, forget, on the same engine as everything else."""

from clew.memory.aio import AsyncMemory
from clew.memory.conversation import WorkingMemory
from clew.memory.memory import Memory
from clew.memory.results import Recalled, Recollection, Remembered

__all__ = ["AsyncMemory", "Memory", "Recalled", "Recollection", "Remembered", "WorkingMemory"]
