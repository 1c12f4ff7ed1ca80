"""The knowledge graph of a store: built offline, asked through `engine.graph` and by the source
`graph` (sources/graph.py).

knowledge.py is where to begin reading; build.py makes the graph, local.py and themes.py ask it.
"""

from __future__ import annotations

from clew.graph.knowledge import GraphAnswer, KnowledgeGraph

__all__ = ["GraphAnswer", "KnowledgeGraph"]
