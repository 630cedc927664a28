"""The shells of replicated logs: folders and etcd."""
