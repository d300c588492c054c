package moe

// Counts are the sizes of a model and its costs per token.
type Counts struct {
	Total int64 `json:"total"` // parameters, the MTP module's included
	// parameters that one token uses; includes both embeddings, excludes the MTP module
	Active     int64 `json:"active"`
	Routed     int64 `json:"routed"`     // parameters of all routed experts
	PerExpert  int64 `json:"per_expert"` // parameters of one routed expert
	MTP        int64 `json:"mtp"`        // parameters of the MTP module
	Replicated int64 `json:"replicated"` // parameters on every rank
}

// Count returns the parameter counts. The router's selection bias is not a parameter.
func (c Config) Count() Counts {
	n := Counts{PerExpert: c.perExpert()}
	for _, m := range c.Modules(0) {
		n.Total += m.Params
		if m.MTP {
			n.MTP += m.Params
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
		if !m.MTP {
			sum += m.FLOPs.Total()
		}
	}
	return sum
}
