"""What people read: terminal tables and live progress."""
