"""Every setting as data: keys, types, defaults, ranges."""
