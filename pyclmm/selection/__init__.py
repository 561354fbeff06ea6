"""The choice of a kernel: models, measured tables, and the files of the user's cache. Pure.

Others import: explanation, schema, select, store, tables.
"""
