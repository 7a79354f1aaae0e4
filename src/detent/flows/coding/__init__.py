"""Coding: an assistant for a workspace that ends a request by an explicit marker, and never too early."""
