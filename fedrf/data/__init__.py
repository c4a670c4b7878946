"""Domains of data sets: labelled sources and an unlabelled target."""
