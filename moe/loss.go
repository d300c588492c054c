package moe

import (
	"math"
)

// Loss is the result of a pass, as sums over this rank's tokens. Their sums over ranks and passes
// have the same bits for any distribution of sequences and layers. They are exact, because their
// terms are rounded to multiples of a power of two.
type Loss struct {
	// cross-entropy, nats; each sequence's is rounded to 2^-24, so that sums are exact up to 2^29
	Sum    float64
	Tokens int
	// the same for predictions further ahead, before their weight: see Config.MTPLayers
	Ahead       float64
	AheadTokens int
	// this rank's part of the balance loss, with its weight and mean applied; each sequence's in a
	// layer is rounded to 2^-48, so that sums are exact up to 2^5
	Balance float64
	// this rank's part of the indexers' loss, with its mean applied and without its weight; rounded
	// like Balance
	Index float64
	// expert choices dropped for lack of room; 0 unless the exchange has a capacity
	Dropped int
}

// sequenceLoss holds the parts of Loss that are sums over the tokens of one sequence.
type sequenceLoss struct {
	main, ahead, balance, index float64
}

// Add adds the losses of other tokens, or of other layers.
func (l *Loss) Add(o Loss) {
	l.Sum, l.Tokens, l.Ahead, l.AheadTokens = l.Sum+o.Sum, l.Tokens+o.Tokens, l.Ahead+o.Ahead, l.AheadTokens+o.AheadTokens
	l.Balance += o.Balance
	l.Index += o.Index
	l.Dropped += o.Dropped
}

// of returns the cross-entropy of the next tokens, or of those further ahead.
func (l *sequenceLoss) of(ahead bool) *float64 {
	if ahead {
		return &l.ahead
	}
	return &l.main
}

// sum sets l to the losses of the sequences.
func (l *Loss) sum(sequences []sequenceLoss) {
	l.Sum, l.Ahead, l.Balance, l.Index = 0, 0, 0, 0
	for _, s := range sequences {
		l.Sum += rounded(s.main)
		l.Ahead += rounded(s.ahead)
		l.Balance += s.balance
		l.Index += s.index
	}
}

// rounded returns a sequence's cross-entropy as Loss sums it.
func rounded(loss float64) float64 { return math.RoundToEven(loss*0x1p24) * 0x1p-24 }

// roundedPart returns a sequence's part of a mean, in one layer, as Loss sums it.
func roundedPart(loss float64) float64 { return math.RoundToEven(loss*0x1p48) * 0x1p-48 }
