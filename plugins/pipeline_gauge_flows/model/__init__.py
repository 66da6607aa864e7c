"""The flow: layers, masks, loops, quarks."""
