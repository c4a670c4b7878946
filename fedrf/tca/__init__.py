"""The paper's equations: random features, MMD, RF-TCA and its federated forms."""
