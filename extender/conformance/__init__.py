"""Compares the replay with recorded answers of real kubelets and of the real NRI policy."""
