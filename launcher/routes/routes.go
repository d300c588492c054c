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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
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

// Layer returns the routes of the layer at an index of Header.Layers, [tokens, topK] each.
func (s Step) Layer(h Header, i int) (experts []int32, weights []float32) {
	n := h.Tokens() * h.TopK
	return s.Experts[i*n : (i+1)*n], s.Weights[i*n : (i+1)*n]
}

// schema returns the Arrow schema of a file.
func (h Header) schema() (*arrow.Schema, error) {
	h.Format = format
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	metadata := arrow.NewMetadata([]string{headerKey}, []string{string(text)})
	return arrow.NewSchema(h.fields(), &metadata), nil
}

func (h Header) fields() []arrow.Field {
	k := int32(h.TopK)
	return []arrow.Field{
		{Name: "step", Type: arrow.PrimitiveTypes.Int32},
		{Name: "layer", Type: arrow.PrimitiveTypes.Int32},
		{Name: "experts", Type: arrow.FixedSizeListOfNonNullable(k, arrow.PrimitiveTypes.Uint16)},
		{Name: "weights", Type: arrow.FixedSizeListOfNonNullable(k, arrow.PrimitiveTypes.Float32)},
	}
}

// message returns the bytes of the schema at the beginning of a file.
func (h Header) message() ([]byte, error) {
	schema, err := h.schema()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(schema)).Close(); err != nil {
		return nil, err
	}
	return b.Bytes()[:b.Len()-8], nil // without the end of the stream
}

// readHeader reads the schema at the beginning of a file. It accepts exactly those that a [Writer]
// writes: the Arrow library trusts the counts in a schema.
func readHeader(r io.Reader) (h Header, err error) {
	start, err := io.ReadAll(io.LimitReader(r, mostHeader))
	if err != nil {
		return h, err
	}
	at := bytes.Index(start, []byte(`{"format":`))
	if at < 0 || json.NewDecoder(bytes.NewReader(start[at:])).Decode(&h) != nil {
		return h, errors.New("it has no routes: expected a file of train --record-routes")
	}
	if err := h.check(); err != nil {
		return h, err
	}
	if want, err := h.message(); err != nil || !bytes.HasPrefix(start, want) {
		return h, errors.Join(errors.New("its schema is damaged, or of another version"), err)
	}
	return h, nil
}

// mostHeader bounds the bytes of a header.
const mostHeader = 1 << 20

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
