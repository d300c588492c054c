// Package ratios is what this engine measures of a model for projections onto other machines: the
// destinations of tokens, the resulting traffic, and ratios of the engine's own times. Counts
// transfer to a GPU; ratios of times are facts about this machine.
package ratios

import (
	"fmt"
	"math"

	"spmoe/internal/strictjson"
)

// Schema is the version of the file format.
const Schema = 1

// Name is the file's name in the folder of a run.
const Name = "ratios.json"

// MaxSize is far above the size of any file: one with 256 experts and 64 ranks has some hundred
// kilobytes.
const MaxSize = 16 << 20

// File holds all measurements.
type File struct {
	Schema  int     `json:"schema"`
	Origin  string  `json:"origin"` // train or bench
	Machine Machine `json:"machine"`
	Model   Shape   `json:"model"`
	Ranks   int     `json:"ranks"`
	Steps   int     `json:"steps"` // optimizer steps whose routing was counted

	Layers  []Layer `json:"layers,omitempty"`  // of layers with experts, in order
	Traffic Traffic `json:"traffic"`           // of all layers together, forward dispatch
	Padding Padding `json:"padding"`           // share of rows that padding adds
	Density Density `json:"attention_density"` // unmasked share of the scores

	Phases   map[string]float64 `json:"phases,omitempty"` // share of step time
	Products []Product          `json:"products,omitempty"`
	Exchange []Exchange         `json:"exchange,omitempty"`
}

// Machine describes the measured machine.
type Machine struct {
	CPU     string `json:"cpu"`
	Tier    string `json:"tier"` // instruction tier
	Cores   int    `json:"cores"`
	System  string `json:"system"`
	Version string `json:"version"` // of the program
}

// Shape is the part of the model that routing depends on.
type Shape struct {
	Name    string `json:"name"`
	Dim     int    `json:"dim"`
	Layers  int    `json:"layers"`
	Experts int    `json:"experts"`
	TopK    int    `json:"top_k"`
	Groups  int    `json:"groups"`
	Limit   int    `json:"group_limit"` // groups that a token may visit
	Seq     int    `json:"seq"`
}

// Layer is the routing of one layer.
type Layer struct {
	Layer  int     `json:"layer"`
	Rows   []int64 `json:"rows"` // [experts], all steps
	Places []Place `json:"places"`
}

// Place describes the distribution of tokens if the experts lay in a number of equal parts: ranks,
// or nodes.
type Place struct {
	Places    int     `json:"places"`
	Distinct  float64 `json:"distinct"`  // mean number of parts that a token visits
	Imbalance float64 `json:"imbalance"` // fullest part over the mean, averaged over steps
}

// Traffic holds rows and copies by source and destination rank.
type Traffic struct {
	RowBytes int `json:"row_bytes"` // of one copy of a token, BF16
	// [source][destination]: one per choice, as a standard all-to-all sends
	Rows [][]int64 `json:"rows"`
	// the same, with one per token and visited rank
	Copies [][]int64 `json:"copies"`
}

// Bytes returns the bytes between all ranks, including a rank's own: per choice, and without
// duplicates.
func (t Traffic) Bytes() (standard, dedup int64) {
	for i := range t.Rows {
		for j := range t.Rows[i] {
			standard += t.Rows[i][j] * int64(t.RowBytes)
			dedup += t.Copies[i][j] * int64(t.RowBytes)
		}
	}
	return standard, dedup
}

// Padding is the share of rows that padding groups to multiples of 32 or 128 adds.
type Padding struct {
	To32  float64 `json:"to_32"`
	To128 float64 `json:"to_128"`
}

// Density is the unmasked share of all seq² scores.
type Density struct {
	Causal   float64 `json:"causal"`
	Document float64 `json:"document"` // causal, and within a document
}

// Product compares a product of the model in MXFP8 with the same in BF16, on this machine.
type Product struct {
	Name  string  `json:"name"`
	Shape string  `json:"shape"`
	Time  float64 `json:"mxfp8_over_bf16_time"`
}

// Exchange compares the two exchanges of one layer, on this machine.
type Exchange struct {
	Tokens int     `json:"tokens"`
	Hidden int     `json:"hidden"`
	TopK   int     `json:"top_k"`
	Ranks  int     `json:"ranks"`
	Time   float64 `json:"onesided_over_standard_time"`
}

// At returns the distribution of tokens over a number of places, averaged over the layers: exactly
// if it was counted, otherwise for the nearest number that was.
func (f File) At(places int) (p Place, ok bool) {
	n := 0.0
	for _, l := range f.Layers {
		best, distance := -1, math.Inf(1)
		for i, q := range l.Places {
			if d := math.Abs(math.Log(float64(q.Places) / float64(places))); d < distance {
				best, distance = i, d
			}
		}
		if best < 0 {
			continue
		}
		q := l.Places[best]
		p.Places, p.Distinct, p.Imbalance = q.Places, p.Distinct+q.Distinct, p.Imbalance+q.Imbalance
		n++
	}
	p.Distinct, p.Imbalance = p.Distinct/n, p.Imbalance/n
	return p, n > 0
}

// Fill copies missing times from another file: a run has shares of its step, a benchmark has ratios
// of products and exchanges.
func (f *File) Fill(other File) {
	if len(f.Phases) == 0 {
		f.Phases = other.Phases
	}
	if len(f.Products) == 0 {
		f.Products = other.Products
	}
	if len(f.Exchange) == 0 {
		f.Exchange = other.Exchange
	}
}

// Limits on the content of a file.
const (
	maxExperts = 1 << 14
	maxLayers  = 1 << 11
	maxRanks   = 1 << 12
)

// Parse reads the text of a file. Its result is safe to compute with.
func Parse(text []byte) (File, error) {
	var f File
	if len(text) > MaxSize {
		return f, fmt.Errorf("the file is larger than %d bytes: is it a %s?", MaxSize, Name)
	}
	if err := strictjson.Unmarshal(text, &f); err != nil {
		return f, err
	}
	return f, f.check()
}

func (f File) check() error {
	m := f.Model
	switch {
	case f.Schema != Schema:
		return fmt.Errorf("schema is %d: this program reads %d: measure again", f.Schema, Schema)
	case m.Experts < 1 || m.Experts > maxExperts || m.TopK < 1 || m.TopK > m.Experts:
		return fmt.Errorf("model has %d experts and top-k %d: want 1 to %d experts and a top-k of at most those", m.Experts, m.TopK, maxExperts)
	case m.Groups < 1 || m.Groups > m.Experts || m.Experts%m.Groups != 0 || m.Limit < 1 || m.Limit > m.Groups:
		return fmt.Errorf("model has %d groups, limit %d: want groups that divide %d experts and a limit of at most those", m.Groups, m.Limit, m.Experts)
	case f.Ranks < 1 || f.Ranks > maxRanks || len(f.Layers) > maxLayers:
		return fmt.Errorf("%d ranks and %d layers: want 1 to %d ranks and at most %d layers", f.Ranks, len(f.Layers), maxRanks, maxLayers)
	}
	for _, l := range f.Layers {
		if len(l.Rows) != m.Experts || len(l.Places) == 0 {
			return fmt.Errorf("layer %d has %d counts of rows and %d places: want %d and some", l.Layer, len(l.Rows), len(l.Places), m.Experts)
		}
		for _, p := range l.Places {
			if p.Places < 1 || p.Places > m.Experts || m.Experts%p.Places != 0 || !(p.Distinct >= 0 && p.Distinct <= float64(m.TopK)) || !(p.Imbalance >= 0 && p.Imbalance <= float64(p.Places)) {
				return fmt.Errorf("layer %d has the place %+v: want a divisor of %d experts, at most %d distinct places, an imbalance of at most their number", l.Layer, p, m.Experts, m.TopK)
			}
		}
	}
	for phase, share := range f.Phases {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("phase %.50q has the share %g: want 0 to 1", phase, share)
		}
	}
	for _, t := range f.Products {
		if !(t.Time > 0 && t.Time < 1e6) {
			return fmt.Errorf("product %.50q %.50q has the ratio %g: want a positive number", t.Name, t.Shape, t.Time)
		}
	}
	for _, t := range f.Exchange {
		if !(t.Time > 0 && t.Time < 1e6) {
			return fmt.Errorf("an exchange has the ratio %g: want a positive number", t.Time)
		}
	}
	return nil
}
