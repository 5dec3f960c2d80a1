"""Our own recordings of vLLM on the CPU clock: what is run, recorded, fitted, predicted and compared."""
