"""Charts as values, and their drawing as SVG: for the report, the web UI and the docs."""
