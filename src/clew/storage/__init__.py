"""Records in the tables of a database, whichever that is. The store over them is clew/store.py."""
