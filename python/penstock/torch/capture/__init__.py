"""From a stage's code to compiled graphs: what is captured, where its errors are, proofs about slices."""
