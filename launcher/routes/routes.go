// Package routes reads and writes files of routes: the experts of each token and their weights, in
// every step and layer of a training run.
//
// A file is an Arrow IPC stream, compressed with zstd, so that pyarrow.ipc.open_stream reads it and
// a run that was killed leaves a readable one. Each record batch is a step. Its rows are the tokens
// of the global batch in order, for the first layer with experts, then for the next one, and so on:
//
//	step     int32               1 is the first step
//	layer    int32               the model's number of the layer
//	experts  [topK] uint16       best first
//	weights  [topK] float32      of the experts' outputs
//
// Token t is at position t mod seq of sequence t/seq of the global batch, whatever the layout of
// the run. The metadata key "spmoe.routes" holds the [Header] as JSON.
package routes

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"spmoe/datasets/arrowipc"
)

// Header describes the run that a file is of.
type Header struct {
	Format    int    `json:"format"` // 1
	Flavor    string `json:"flavor"`
	Precision string `json:"precision"`
	Layers    []int  `json:"layers"` // that have experts
	Experts   int    `json:"experts"`
	TopK      int    `json:"top_k"`
	Dim       int    `json:"dim"`   // elements of a token's row
	Seq       int    `json:"seq"`   // tokens per sequence
	Batch     int    `json:"batch"` // sequences per step
	Ranks     int    `json:"ranks"` // that the batch is divided among
	EP        int    `json:"ep"`    // ranks that hold each expert once
	Text      string `json:"text"`  // fingerprint of the training text
	Seed      uint64 `json:"seed"`  // of the order of the text
}

const (
	headerKey = "spmoe.routes"
	format    = 1

	// MaxExperts is the largest number of experts that a file can hold.
	MaxExperts = 1 << 16
)

// Tokens returns the tokens per step.
func (h Header) Tokens() int { return h.Batch * h.Seq }

// choices returns the number of choices per step, in all layers.
func (h Header) choices() int { return len(h.Layers) * h.Tokens() * h.TopK }

// Step holds the routes of a step.
type Step struct {
	Step    int
	Experts []int32   // [layers, tokens, topK]
	Weights []float32 // [layers, tokens, topK]
}

// columns returns the columns of a file, in the order of [columnStep] and so on.
func (h Header) columns() []arrowipc.NumberColumn {
	return []arrowipc.NumberColumn{
		{Name: "step", Type: arrowipc.Int32},
		{Name: "layer", Type: arrowipc.Int32},
		{Name: "experts", Type: arrowipc.Uint16, List: h.TopK},
		{Name: "weights", Type: arrowipc.Float32, List: h.TopK},
	}
}

const (
	columnStep = iota
	columnLayer
	columnExperts
	columnWeights
)

// metadata returns the metadata of a file: its key and the header.
func (h Header) metadata() ([]string, error) {
	h.Format = format
	text, err := json.Marshal(h)
	return []string{headerKey, string(text)}, err
}

// noRoutes returns the error of a file that is something else.
func noRoutes(err error) error {
	return fmt.Errorf("it has no routes: expected a file of a run with record_routes (%w)", err)
}

// headerOf returns the header of a file, and checks that it describes the file's columns.
func headerOf(r *arrowipc.NumberReader) (h Header, err error) {
	if err := json.Unmarshal([]byte(r.Metadata[headerKey]), &h); err != nil {
		return h, noRoutes(err)
	}
	if err := h.check(); err != nil {
		return h, err
	}
	if !slices.Equal(r.Columns, h.columns()) {
		return h, fmt.Errorf("it has the columns %+v: expected %+v", r.Columns, h.columns())
	}
	return h, nil
}

// check returns an error if no run has this header.
func (h Header) check() error {
	most := func(n, most int) bool { return n >= 1 && n <= most }
	switch {
	case h.Format != format:
		return fmt.Errorf("it has format %d: expected %d", h.Format, format)
	case !most(h.Experts, MaxExperts) || !most(h.TopK, h.Experts) || !most(h.Dim, 1<<20) || !most(h.Ranks, 1<<20) || !most(h.EP, h.Ranks),
		!most(h.Seq, 1<<24) || !most(h.Batch, 1<<24) || !most(len(h.Layers), 1<<16):
		return fmt.Errorf("its header describes no run: %+v", h)
	case h.Experts%h.EP != 0 || h.Batch%h.Ranks != 0:
		return fmt.Errorf("its header has %d experts on %d ranks, and %d sequences on %d", h.Experts, h.EP, h.Batch, h.Ranks)
	case math.MaxInt32/h.Tokens()/h.TopK < len(h.Layers):
		return fmt.Errorf("its steps would have %d tokens, top %d, in %d layers: too many", h.Tokens(), h.TopK, len(h.Layers))
	}
	return nil
}

// check returns an error unless each token of a step has topK different experts that exist, and
// finite weights.
func (s Step) check(h Header) error {
	for i, e := range s.Experts {
		own := s.Experts[i-i%h.TopK : i]
		if int(e) >= h.Experts || slices.Contains(own, e) {
			return fmt.Errorf("a token of step %d has expert %d, of %d, after %v: the file is damaged", s.Step, e, h.Experts, own)
		}
		if w := float64(s.Weights[i]); math.IsNaN(w) || math.IsInf(w, 0) {
			return fmt.Errorf("a token of step %d has weight %v: the file is damaged", s.Step, w)
		}
	}
	return nil
}
