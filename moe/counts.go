package moe

// Counts says how large a model is and what a token costs.
type Counts struct {
	Total       int64 // parameters, the MTP module's included
	Active      int64 // parameters that one token meets, both embeddings counted, without the MTP module
	Routed      int64 // parameters of all routed experts
	PerExpert   int64 // parameters of one routed expert
	MTP         int64 // parameters of the MTP module
	Replicated  int64 // parameters that every rank holds
	Activations int64 // FP32-equivalent elements that one token keeps for the backward pass, roughly
}

// Count returns the parameter counts. The router's selection bias is not a parameter.
func (c Config) Count() Counts {
	attention := int64(c.Dim*(c.KVRank+c.RopeDim) + c.KVRank + c.KVRank*c.Heads*(c.NopeDim+c.ValueDim) + c.Heads*c.ValueDim*c.Dim)
	if c.QRank > 0 {
		attention += int64(c.Dim*c.QRank + c.QRank + c.QRank*c.Heads*c.KeyDim())
	} else {
		attention += int64(c.Dim * c.Heads * c.KeyDim())
	}
	norms := int64(2 * c.Dim)
	dense := 3 * int64(c.Dim) * int64(c.DenseInter)
	expert := 3 * int64(c.Dim) * int64(c.ExpertInter)
	moeFixed := int64(c.Dim*c.Experts) + expert*int64(c.SharedExperts)
	embeddings := 2 * int64(c.Vocab) * int64(c.Dim)

	moeLayers := int64(c.Layers - c.DenseLayers)
	fixed := embeddings + int64(c.Dim) + int64(c.Layers)*(attention+norms) + int64(c.DenseLayers)*dense + moeLayers*moeFixed
	n := Counts{
		PerExpert: expert,
		Routed:    moeLayers * int64(c.Experts) * expert,
		Active:    fixed + moeLayers*int64(c.TopK)*expert,
	}
	n.Replicated = fixed
	if c.MTPLayers > 0 {
		extra := 2*int64(c.Dim)*int64(c.Dim) + 3*int64(c.Dim) + attention + norms + moeFixed
		n.MTP = extra + int64(c.Experts)*expert
		n.Replicated += extra
		n.Routed += int64(c.Experts) * expert
	}
	n.Total = n.Replicated + n.Routed
	n.Activations = c.activations()
	return n
}

// FLOPsPerToken returns the training FLOPs of one token in a sequence of seq, as TorchTitan
// counts them: 6 a parameter that the token meets (the input embedding is a look-up) and
// 6·layers·heads·(key + value dimension)·seq for attention, causal or not.
func (c Config) FLOPsPerToken(seq int) float64 {
	met := c.Count().Active - int64(c.Vocab)*int64(c.Dim)
	return 6*float64(met) + 6*float64(c.Layers*c.Heads*(c.KeyDim()+c.ValueDim)*seq)
}

// activations follows what the layers keep from forward to backward (see their saved structs).
func (c Config) activations() int64 {
	attention := 2*c.Dim + 2*c.QRank + 2*c.KVRank + c.RopeDim + c.Heads*(2*c.KeyDim()+2*c.ValueDim)
	perLayer := 2*c.Dim + attention
	dense := 3 * c.DenseInter
	routed := c.TopK*(3*c.Dim+3*c.ExpertInter) + 3*c.ExpertInter*c.SharedExperts + 2*c.Experts
	return int64(c.Layers*perLayer + c.DenseLayers*dense + c.MoELayers()*routed)
}
