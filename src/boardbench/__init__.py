"""boardbench: desired state and trustworthy measurements for a fleet of boards."""

__version__ = "0.1.0"
