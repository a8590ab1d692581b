"""What makes a run outlive its process: facts on disk, and how a run goes on from them."""
