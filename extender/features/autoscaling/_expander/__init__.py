"""Messages of Cluster Autoscaler's expander. `expander_pb2` is made from the .proto file when installing."""
