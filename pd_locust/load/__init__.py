"""Locust users, events and shapes. A locustfile calls `plugin.register(events)`; importing does nothing."""
