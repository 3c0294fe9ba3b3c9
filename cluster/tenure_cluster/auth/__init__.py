"""Who may talk to this node: certificates and the contexts made of them."""
