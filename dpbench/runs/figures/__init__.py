"""Figures of records: learning curves and other lines, heat maps, reliability and scatter plots."""
