"""Connects preempt with its watches."""

from extender.features.preemption.budgets_feed import BUDGETS
from extender.features.preemption.nominated_feed import NOMINATED, NominatedFeed
from extender.features.preemption.running import WatchedPods
from extender.runtime.connection import ApiConnection, ConnectedFeature


class PreemptionFeature(ConnectedFeature):
    """Watches nominated pods, running pods and disruption budgets for the preempt verb."""

    def connect(self, connection: ApiConnection) -> None:
        """Watch nominated pods and budgets, and keep the running pods by node."""
        service, running = self.service, WatchedPods()
        service.known.running.use(running)
        connection.on_pods(running.apply_pods, lambda _record: None)
        connection.watch("nominations", NOMINATED, NominatedFeed(service.known.pods, service.clock).apply)
        connection.watch("budgets", BUDGETS, running.apply_budgets)


make = PreemptionFeature
