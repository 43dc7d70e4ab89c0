"""What makes a cluster of several boards' runs: who starts what, and when the load begins and ends."""
