"""Figures of records: lines, learning curves, heat maps, reliability diagrams."""
