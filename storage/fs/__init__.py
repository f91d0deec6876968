"""Files and disks: the small interface that everything in storage uses."""
