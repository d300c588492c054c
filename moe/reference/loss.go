package reference

// The losses of router logits.
const (
	loadBalance     = "load_balance"
	sequenceBalance = "sequence_balance"
	zLoss           = "z_loss"
)
