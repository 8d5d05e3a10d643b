"""The commands: each opens, asks once, prints. What takes long to import is imported inside."""
