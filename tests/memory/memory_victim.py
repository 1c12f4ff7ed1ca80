"""Run by a test: remembers a secret, deletes it for good, and waits to be killed."""

from __future__ import annotations

import sys
import time

import clew

from hashing import HashingEmbedder

file, secret = sys.argv[1:]
memory = clew.Memory(file, embedder=HashingEmbedder())
memory.remember("the boat has a keel")
made = memory.remember(f"{secret} is the password", tags=[secret], metadata={"k": secret})
memory.recall(secret)
memory.forget(made.id, hard=True)
memory.recall(secret)
print("deleted", flush=True)
time.sleep(600)
