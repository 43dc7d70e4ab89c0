"""What loads the boards: how each workload is started, stopped and read."""
