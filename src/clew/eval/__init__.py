"""Evaluation: how well does a search find what it should, and how sure is that."""
