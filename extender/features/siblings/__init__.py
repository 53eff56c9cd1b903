"""What new nodes are assumed to be until they report. Settings `sibling_labels`, `node_profiles`."""
