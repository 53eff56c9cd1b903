"""Messages of the kubelet's podresources service. `podresources_pb2` is made from the .proto file when installing."""
