"""The compiled forward pass: C++ that this machine's own compiler builds once, called through ctypes."""
