"""What playing a load takes beside the pure room: files and a Prometheus to read, all cores, and a terminal to tell."""
