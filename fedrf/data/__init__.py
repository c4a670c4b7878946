"""Domains as data sets: labelled sources, an unlabelled target."""
