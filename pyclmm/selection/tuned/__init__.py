"""Measured tables: data only, one JSON file for each device."""
