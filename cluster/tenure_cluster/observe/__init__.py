"""What a node lets its operators see."""
