"""Scrapes targets on time and turns their responses into samples or failures."""
