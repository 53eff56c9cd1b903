"""Connects siblings with the watches of nodes and pods."""

from extender.api.service import Service
from extender.features.profiles import read_profiles
from extender.features.siblings.siblings import Siblings
from extender.kube.feed import Refused
from extender.runtime.connection import ApiConnection, ConnectedFeature


class SiblingsFeature(ConnectedFeature):
    """Gives nodes that have not reported the kubelet of their siblings or of a profile.

    Raises:
        ProfileError: a file of the setting `node_profiles` cannot be used.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.profiles = read_profiles(service.settings.node_profiles) if service.settings.node_profiles else ()

    def connect(self, connection: ApiConnection) -> None:
        """Compare nodes, and withdraw what was assumed where a kubelet refuses a pod."""
        service = self.service
        labels = [label.strip() for label in service.settings.sibling_labels.split(",")]
        siblings = Siblings(
            service.known.nodes, list(filter(None, labels)), service.clock, connection.pods_on, self.profiles
        )

        def note_refused(refused: Refused) -> None:
            if refused.is_ours:
                siblings.note_refused(refused.node_name, refused.pod)

        connection.on_nodes.append(siblings.apply)
        connection.on_refused.append(note_refused)
        connection.on_check.append(lambda _states: siblings.settle())


make = SiblingsFeature
