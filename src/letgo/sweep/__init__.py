"""A grid of trainings and measurements, on this machine or a cluster; only what is missing is done."""
