//! What the control plane does by itself, as far as a drain or a repair sees it.
