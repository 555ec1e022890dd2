"""The registry of a fleet in etcd 3.5 and newer, over its JSON gateway.

EtcdRegistry (registry)   the port: a session is an etcd lease, and what it has are keys that hang on it
  keys                    the keys and what stands in them
  EtcdClient (client)     questions and their endpoints, failover, tokens
    gateway               protobuf in JSON
    address               the setting `lease`
"""

from tocsin.lease.etcd.registry import EtcdRegistry, open_registry

__all__ = ["EtcdRegistry", "open_registry"]
