"""The tables and figures of the paper, with our numbers beside the published ones: one file for each."""
