"""Scrapes targets on time, learns how often a page changes, and says what a body is that is no metrics page."""
