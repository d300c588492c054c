package moe

// How the blocks of a model are joined to the residual stream.

// residual is what joins a block to the residual stream.
type residual struct {
	join            *join  // before the block, if it predicts further ahead; nil: its input is the stream
	attnMix, ffnMix *mixer // of its halves; nil: there is one stream
}

// residualKind is what a configuration says about the input of a layer.
type residualKind interface {
	// linears calls add with the matrices before the block and of mixers. vectors is that of
	// [attentionKind].
	linears(add func(LinearLayer))
	vectors() int
	// build adds the parameters of all that. prefix begins their names.
	build(b *builder, prefix string) residual
}

// streamKind is the output of the layer before it.
type streamKind struct{}

func (streamKind) linears(func(LinearLayer))       {}
func (streamKind) vectors() int                    { return 0 }
func (streamKind) build(*builder, string) residual { return residual{} }

// streamsKind is the residual kind of a model with several streams.
type streamsKind struct{ Config }

func (c streamsKind) linears(add func(LinearLayer)) {
	l := matrix("mixers", Streams, c.ResidualDim(), c.mixOutputs())
	l.Held, l.Met = 2, 2
	add(l)
}

func (c streamsKind) vectors() int { return 2 * (c.mixOutputs() + 3) }

func (c streamsKind) build(b *builder, prefix string) residual {
	return residual{attnMix: newMixer(b, c.Config, prefix+"attn_hc.", false), ffnMix: newMixer(b, c.Config, prefix+"ffn_hc.", false)}
}

// joinKind is the input of a block that predicts further ahead.
type joinKind struct{ Config }

func (c joinKind) linears(add func(LinearLayer)) { add(matrix("mtp_join", Joint, 2*c.Dim, c.Dim)) }

func (c joinKind) vectors() int { return 2 * c.Dim }

func (c joinKind) build(b *builder, prefix string) residual {
	j := &join{
		embedNorm:  newNorm(b, prefix+"enorm", c.Dim, c.NormEps),
		hiddenNorm: newNorm(b, prefix+"hnorm", c.Dim, c.NormEps),
	}
	b.linear(&j.project, Joint, prefix+"eh_proj", c.Dim, 2*c.Dim, truncNormal(linearStd))
	return residual{join: j}
}
