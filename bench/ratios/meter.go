package ratios

// Counting: a meter sees the choices of one rank's tokens. The ranks' meters are summed at the end.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/collective/ep"
)

// Meter counts the destinations of one rank's tokens. All ranks have meters of the same shape.
type Meter struct {
	shape   Shape
	layout  ep.Layout
	numbers []int   // of the layers, in order
	places  []int   // numbers of parts to count: divisors of the number of experts
	tokens  []int64 // [layers]
	visits  []int64 // [layers, places]: sum over tokens of distinct places
	rows    []int64 // [layers, experts]
	sent    []int64 // [ranks]: one row per choice
	copies  []int64 // [ranks]: without duplicates

	steps int64
	// [layers, places]: sum over steps of the fullest place over the mean
	largest []float64
	padded  [2]int64 // rows after padding groups to multiples of 32 and 128
	whole   int64    // rows before padding

	scores, causal, pairs int64 // of attention, see Sequence
	seen                  []uint64
}

// NewMeter returns the meter of one of the ranks for the layers with these numbers. ranks exchange
// tokens with each other: all ranks, or the neighbors that have the same stages of a pipeline.
func NewMeter(shape Shape, layers []int, ranks int) (*Meter, error) {
	layout, err := ep.NewLayout(shape.Experts, ranks)
	if err != nil {
		return nil, err
	}
	m := &Meter{shape: shape, layout: layout, numbers: layers, sent: make([]int64, ranks), copies: make([]int64, ranks)}
	for d := 2; d <= shape.Experts; d++ {
		if shape.Experts%d == 0 && len(m.places) < maxPlaces {
			m.places = append(m.places, d)
		}
	}
	if shape.Experts == 1 {
		m.places = []int{1}
	}
	n := len(layers)
	m.tokens, m.rows = make([]int64, n), make([]int64, n*shape.Experts)
	m.visits, m.largest = make([]int64, n*len(m.places)), make([]float64, n*len(m.places))
	m.seen = make([]uint64, (shape.Experts+63)/64)
	return m, nil
}

// maxPlaces bounds the number of divisions of the experts that are counted.
const maxPlaces = 24

// index returns the index of a layer in the meter's lists.
func (m *Meter) index(layer int) int {
	for i, n := range m.numbers {
		if n == layer {
			return i
		}
	}
	panic(fmt.Sprintf("ratios: layer %d has no experts", layer))
}

// Choices counts topk, [tokens, slots] expert ids of this rank's tokens in a layer; -1 is no
// choice.
func (m *Meter) Choices(layer int, topk []int32, slots int) {
	at := m.index(layer)
	m.tokens[at] += int64(len(topk) / slots)
	for lo := 0; lo+slots <= len(topk); lo += slots {
		chosen := topk[lo : lo+slots]
		for _, e := range chosen {
			if e < 0 {
				continue
			}
			m.rows[at*m.shape.Experts+int(e)]++
			m.sent[m.layout.Owner(int(e))]++
		}
		for i, places := range m.places {
			m.visits[at*len(m.places)+i] += int64(m.distinct(chosen, m.shape.Experts/places, nil))
		}
		m.distinct(chosen, m.layout.PerRank, m.copies)
	}
}

// distinct counts the parts of each experts that a token visits, each part in counts.
func (m *Meter) distinct(chosen []int32, each int, counts []int64) (n int) {
	clear(m.seen)
	for _, e := range chosen {
		if e < 0 {
			continue
		}
		part := int(e) / each
		word, bit := part/64, uint64(1)<<(part%64)
		if m.seen[word]&bit == 0 {
			m.seen[word] |= bit
			n++
			if counts != nil {
				counts[part]++
			}
		}
	}
	return n
}

// Step counts the loads of all ranks' tokens in one step, [layers, experts], which every rank
// knows.
func (m *Meter) Step(loads []int64) {
	m.steps++
	e := m.shape.Experts
	for l := range m.numbers {
		load := loads[l*e : (l+1)*e]
		var total int64
		for _, n := range load {
			total += n
			m.whole += n
			m.padded[0] += (n + 31) / 32 * 32
			m.padded[1] += (n + 127) / 128 * 128
		}
		if total == 0 {
			continue
		}
		for i, places := range m.places {
			each, most := e/places, int64(0)
			for lo := 0; lo < e; lo += each {
				sum := int64(0)
				for _, n := range load[lo : lo+each] {
					sum += n
				}
				most = max(most, sum)
			}
			m.largest[l*len(m.places)+i] += float64(most) * float64(places) / float64(total)
		}
	}
}

// Sequence counts the unmasked scores of one sequence. A token equal to separator ends a document.
func (m *Meter) Sequence(tokens []int32, separator int32) {
	n := int64(len(tokens))
	m.pairs += n * n
	m.causal += n * (n + 1) / 2
	length := int64(0)
	for _, t := range tokens {
		if length++; t == separator {
			m.scores += length * (length + 1) / 2
			length = 0
		}
	}
	m.scores += length * (length + 1) / 2
}

// toAll returns what a rank has sent to each of all ranks.
func (m *Meter) toAll(ranks, rank int, sent []int64) []int64 {
	all, n := make([]int64, ranks), len(sent)
	copy(all[rank/n*n:], sent)
	return all
}

// Gather sums the meters of all ranks into the routing part of a file. All ranks call it.
func (m *Meter) Gather(c *collective.Comm) (f File, err error) {
	own := append(append([]int64{}, m.sent...), m.copies...)
	all := make([]int64, len(own)*c.Size())
	if err := collective.AllGather(c, all, own); err != nil {
		return f, err
	}
	sums := append(append(append([]int64{}, m.tokens...), m.visits...), m.rows...)
	sums = append(sums, m.scores, m.causal, m.pairs)
	if err := collective.AllReduce(c, sums, collective.Sum); err != nil {
		return f, err
	}
	f = File{Schema: Schema, Model: m.shape, Ranks: c.Size(), Steps: int(m.steps), Traffic: Traffic{RowBytes: 2 * m.shape.Dim}}
	for r := range c.Size() {
		part := all[r*len(own):]
		f.Traffic.Rows = append(f.Traffic.Rows, m.toAll(c.Size(), r, part[:len(m.sent)]))
		f.Traffic.Copies = append(f.Traffic.Copies, m.toAll(c.Size(), r, part[len(m.sent):len(own)]))
	}
	n, p, e := len(m.numbers), len(m.places), m.shape.Experts
	visits, rows := sums[n:], sums[n+n*p:]
	for l, number := range m.numbers {
		layer := Layer{Layer: number, Rows: rows[l*e : (l+1)*e]}
		for i, places := range m.places {
			layer.Places = append(layer.Places, Place{
				Places: places, Distinct: float64(visits[l*p+i]) / float64(max(sums[l], 1)), Imbalance: m.largest[l*p+i] / float64(max(m.steps, 1)),
			})
		}
		f.Layers = append(f.Layers, layer)
	}
	if m.whole > 0 {
		f.Padding = Padding{float64(m.padded[0])/float64(m.whole) - 1, float64(m.padded[1])/float64(m.whole) - 1}
	}
	if tail := rows[n*e:]; tail[2] > 0 {
		f.Density = Density{Causal: float64(tail[1]) / float64(tail[2]), Document: float64(tail[0]) / float64(tail[2])}
	}
	return f, nil
}
