"""Post-processing with pandas: from a run's files to tables, sentences and warnings. Generates no load."""
