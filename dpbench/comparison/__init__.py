"""How runs are compared: the judge, tables, searches, reproduction, verification, the report."""
