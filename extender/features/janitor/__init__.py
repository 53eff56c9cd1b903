"""Deletes failed pods that kubelets refused for their topology. Setting `janitor`."""
