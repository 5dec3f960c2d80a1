"""What ships with leadline: scenarios, hardware profiles and derived workloads (data files)."""
