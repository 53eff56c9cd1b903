"""The scheduler extender: keeps every node in memory and answers by replaying the kubelet's own admission."""
