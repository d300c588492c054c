package datasets

// Mixtures: windows drawn from several streams in given shares, in an order that depends only on
// the sample's number.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// slots is the length of the period of a mixture. In this many samples each stream has its share
// exactly, to the nearest slot, in the order of its turns. It is part of what a checkpoint promises
// and must never change.
const slots = 10000

// part is a stream of a mixture.
type part struct {
	stream Stream
	slots  int64 // per period
	before int64 // slots of the parts before it
}

// turn is the place of a sample in its period: its part, and how many samples of the period come
// before it from that part.
type turn struct{ part, before uint16 }

// takeTurns returns the turns of a period. After any n samples, each part has had less than one
// sample more or less than its share of n.
//
// With s of S slots, sample k of a part must come at floor(kS/s) or later, and before
// ceil((k+1)S/s). The sample with the earliest end comes first (Baruah, Cohen, Plaxton and Varvel,
// "Proportionate Progress", 1996: there is always one, and none comes too late). Of equal ends,
// that of the first part does.
func takeTurns(parts []part) []turn {
	turns, taken := make([]turn, slots), make([]int64, len(parts))
	for at := range turns {
		next, end := 0, int64(math.MaxInt64)
		for i, p := range parts {
			k := taken[i]
			if e := ((k+1)*slots + p.slots - 1) / p.slots; k*slots/p.slots <= int64(at) && e < end {
				next, end = i, e
			}
		}
		turns[at] = turn{uint16(next), uint16(taken[next])}
		taken[next]++
	}
	return turns
}

// mostParts is the maximum number of streams of a mixture, so that each has a slot.
const mostParts = 100

// Mix returns a mixture of streams. A [Loader] draws samples from each stream in proportion to its
// weight, regardless of the streams' lengths. A stream that is read to its end begins again on its
// own, in another order. Weights need not add up to 1. Shares are rounded to multiples of 1/10000,
// and are at least that. [Windows] of a mixture have the same shares. By [EpochRules], a stream has
// its share of any number of samples, to less than one.
func Mix(streams []Stream, weights []float64, rules Rules) (Stream, error) {
	if len(streams) == 0 || len(streams) != len(weights) || len(streams) > mostParts {
		return Stream{}, fmt.Errorf("a mixture of %d streams with %d weights: expected 1 to %d, with a weight each", len(streams), len(weights), mostParts)
	}
	sum := 0.0
	for _, w := range weights {
		if !(w > 0) || math.IsInf(w, 0) {
			return Stream{}, fmt.Errorf("a weight of %v: expected a positive number", w)
		}
		sum += w
	}
	shares := apportion(weights, sum)
	mixed, identity := Stream{}, []string{"mixture"}
	before := int64(0)
	for i, s := range streams {
		mixed.parts = append(mixed.parts, part{s, shares[i], before})
		before += shares[i]
		identity = append(identity, s.fingerprint, strconv.FormatInt(shares[i], 10))
	}
	if rules.byEpochs() {
		identity[0] = "mixture of turns"
		mixed.turns = takeTurns(mixed.parts)
	}
	mixed.fingerprint = digest(identity...)
	return mixed, nil
}

// apportion gives each weight its share of the slots, at least one, by the method of largest
// remainders.
func apportion(weights []float64, sum float64) []int64 {
	shares := make([]int64, len(weights))
	order := make([]int, len(weights))
	exact := make([]float64, len(weights))
	left := int64(slots)
	for i, w := range weights {
		exact[i] = slots * (w / sum)
		shares[i] = max(int64(exact[i]), 1)
		left -= shares[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(exact[j]-float64(shares[j]), exact[i]-float64(shares[i]))
	})
	for k := 0; left > 0; k++ {
		shares[order[k%len(order)]]++
		left--
	}
	// shares below one slot were rounded up, and the largest share makes up for it
	for ; left < 0; left++ {
		largest := 0
		for i := range shares {
			if shares[i] > shares[largest] {
				largest = i
			}
		}
		shares[largest]--
	}
	return shares
}

// all returns the parts of a stream: itself, with all slots, if it is not a mixture.
func (s Stream) all() []part {
	if s.parts != nil {
		return s.parts
	}
	return []part{{stream: s, slots: slots}}
}

// SplitWeight splits a data argument PATH@WEIGHT. ok says that it has a weight. A path that itself
// ends like that is given as PATH@X@1.
func SplitWeight(given string) (path string, weight float64, ok bool) {
	at := strings.LastIndexByte(given, '@')
	if at <= 0 {
		return given, 0, false
	}
	weight, err := strconv.ParseFloat(given[at+1:], 64)
	if err != nil {
		return given, 0, false
	}
	return given[:at], weight, true
}
