"""A service mailbox: find the serial number, look the warranty up, open a ticket, answer."""
