"""The control planes people use, each rule with its source, and Tidegate's own."""
