"""A client's network: extractor, random features, aligner and classifier."""
