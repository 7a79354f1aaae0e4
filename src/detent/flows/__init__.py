"""The kinds of workflow. Each stands alone: no kind knows another."""
