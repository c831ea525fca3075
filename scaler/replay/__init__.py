"""A recorded load against a simulated Deployment, scaled by Tidegate's own policy and by those people use. Pure."""
