"""Record batches and message sets: views, builders, conversion, compression, checksum."""
