"""What accounting says, in figures, tables, and pages."""
