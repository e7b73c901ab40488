"""The paper's tables from our own runs: what to measure, measuring it, and the page made of the results."""
