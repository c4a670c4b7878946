"""The tables and figures of the paper, by name: `fedrf paper`.

A recipe (`experiments/`) is a function from a `Setting` to a `Plan`: cells of tables, each with the job that computes
its value. Jobs are named by the hash of their settings, so that tables share them and a repeated call resumes.
"""
