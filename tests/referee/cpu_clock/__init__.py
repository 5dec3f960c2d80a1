"""vLLM on the CPU clock: step costs from one set of its recorded runs, predictions of others."""
