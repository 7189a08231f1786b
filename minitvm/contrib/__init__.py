"""Where TVM's users look for the graph executor; its home is `minitvm.runtime`."""
