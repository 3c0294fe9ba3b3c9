"""The same work under the same faults on two systems, side by side: Tenure and etcd's lock."""
