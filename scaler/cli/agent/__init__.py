"""`tidegate export`: a few sources beside this process, as one small page, in little memory."""
