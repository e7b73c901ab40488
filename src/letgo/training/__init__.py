"""Training: data on the device, one step, the loop around it, and the door `letgo.train`."""
