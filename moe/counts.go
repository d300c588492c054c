package moe

// Counts are the sizes of a model and its costs per token.
type Counts struct {
	Total int64 `json:"total"` // all parameters
	// parameters that one token uses, with both embeddings and without layers that predict further
	// ahead
	Active     int64 `json:"active"`
	Routed     int64 `json:"routed"`     // parameters of all routed experts
	PerExpert  int64 `json:"per_expert"` // parameters of one routed expert
	Ahead      int64 `json:"mtp"`        // parameters of layers that predict further ahead
	Replicated int64 `json:"replicated"` // parameters on every rank
}

// Count returns the parameter counts. The router's selection bias is not a parameter.
func (c Config) Count() Counts {
	n := Counts{PerExpert: 3 * int64(c.Dim) * int64(c.ExpertInter)}
	for _, m := range c.Modules(0) {
		n.Total += m.Params
		if m.Ahead {
			n.Ahead += m.Params
		} else {
			n.Active += m.Active
		}
		if m.Class == Expert {
			n.Routed += m.Params
		} else {
			n.Replicated += m.Params
		}
	}
	return n
}

// FLOPsPerToken returns the training FLOPs per token in a sequence of seq, as TorchTitan counts
// them: 6 per parameter that the token uses (the input embedding is a look-up) and
// 6·layers·heads·(key + value dimension)·seq for attention, causal or not.
func (c Config) FLOPsPerToken(seq int) (sum float64) {
	for _, m := range c.Modules(seq) {
		if !m.Ahead {
			sum += m.FLOPs.Total()
		}
	}
	return sum
}
