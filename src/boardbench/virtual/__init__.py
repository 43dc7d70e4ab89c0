"""Virtual boards: real sshd in a sandbox or container, a live sysfs and a thermal model behind it."""
