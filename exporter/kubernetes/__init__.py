"""What Tidegate knows of the cluster it runs in: how it is asked (I/O), what is kept of the answers (pure), and for how
long that is believed.
"""
