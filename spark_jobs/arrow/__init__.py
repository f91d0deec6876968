"""Records of one partition as Arrow record batches, by the wire or from the segment files of the same host."""
