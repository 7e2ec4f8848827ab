"""Builders of a report: each turns one part of the record into what is said of it."""
