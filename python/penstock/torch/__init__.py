from penstock.torch.runtime import runtime
