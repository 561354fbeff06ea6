"""The choice of a kernel: models, and measured tables. Pure.

Others import: explanation, schema, select, tables.
"""
