package moe

import (
	"strings"
)

// Part names a part of a model: all layers of one kind.
type Part string

// The parts of a model. Only layers that predict further ahead have Joint.
const (
	Embedding   Part = "embedding"
	Norms       Part = "norms" // and biases
	Streams     Part = "residual streams"
	Projections Part = "attention projections"
	Scores      Part = "attention scores" // products of queries with keys and of their softmax with values
	Dense       Part = "dense FFN"
	Router      Part = "router"
	Routed      Part = "routed experts"
	Shared      Part = "shared experts"
	Joint       Part = "joint projection" // of a hidden state and an embedding, before a layer that predicts further ahead
	Head        Part = "output head"
)

// partOrder lists the parts in the order of a pass.
var partOrder = []Part{Embedding, Joint, Norms, Streams, Projections, Scores, Dense, Router, Routed, Shared, Head}

// Class says in which format the weights of a part are held and multiplied.
type Class int

// The classes of weights.
const (
	Single Class = iota // FP32 in every precision
	Plain               // in the working type of the precision, never quantized
	Linear              // according to [Precision.Linears]
	Expert              // according to [Precision.Experts]; each is on one rank only
)

// Class returns the class of a part's weights.
func (p Part) Class() Class {
	switch p {
	case Norms, Streams, Router:
		return Single
	case Projections, Dense, Shared, Joint:
		return Linear
	case Routed:
		return Expert
	}
	return Plain
}

// quantizable reports whether recipes apply to weights of the class.
func (c Class) quantizable() bool { return c == Linear || c == Expert }

// PartKey names a part of the model, or of its layers that predict further ahead.
type PartKey struct {
	Part  Part
	Ahead bool
}

// label returns the name under which arenas count a part.
func (k PartKey) label() string {
	if k.Ahead {
		return aheadLabel + string(k.Part)
	}
	return string(k.Part)
}

const aheadLabel = "ahead: "

// parseLabel is the inverse of label.
func parseLabel(s string) PartKey {
	part, ahead := strings.CutPrefix(s, aheadLabel)
	return PartKey{Part(part), ahead}
}
