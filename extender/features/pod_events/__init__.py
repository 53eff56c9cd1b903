"""Events on pods that fit on no node. Setting `pod_events`."""
