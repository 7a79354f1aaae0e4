"""What runs inside the kernel's process: nothing here imports more of Detent than this folder."""
