// Package step reads one training step of another program from a folder: the model, the batch, and
// the activations and gradients of the step. It brings all forms of such a folder to one set of
// names, those of Hugging Face's modules and parameters:
//
//   - a step folder: config.json, step.json, and safetensors files with the weights, the batch,
//     activations, gradients, and perhaps the weights after the step;
//   - the same from a parallel run, in folders rank-R with a placement.json, which it joins;
//   - the .pt files of sglang's dumper or the folder of transformers' debugger, and a config.json;
//   - a golden folder, with activations named layerN_attention.
//
// Nothing in a folder is trusted or executed. Tensors are read when they are asked for.
package step

import (
	"errors"
	"slices"
	"sync"

	"spmoe/moe/reference"
)

// ErrAbsent says that the folder has no tensor of that name.
var ErrAbsent = errors.New("not in the folder")

// Class says what a tensor is.
type Class string

// The classes begin the names of the files that hold them.
const (
	Weights     Class = "model"
	Gradients   Class = "gradients"
	Activations Class = "activations"
	After       Class = "after"
)

// Folder is an opened folder. Its methods may be called concurrently.
type Folder struct {
	Path   string
	Form   string // "step folder", "golden folder", …, for people
	Config []byte // config.json
	Model  *reference.Config
	Info   Info

	whole  *rank       // what the folder itself has, for all ranks
	ranks  []*rank     // of a parallel run
	tokens []int       // per micro-batch
	groups [][][]*rank // per micro-batch: ranks with the same tokens
	closes []func() error

	mu       sync.Mutex
	read     map[key]bool
	findings []Finding
	joining  sync.Mutex
	joined   map[key]Value // what was joined last
}

// Value is a tensor in memory. Integers and booleans are numbers too.
type Value struct {
	reference.Tensor
	DType string // as safetensors names it, such as BF16
}

// Repeat is one run of the model's modules: one of several micro-batches, or of several calls.
type Repeat struct{ MicroBatch, Call int }

// Finding is what the reader sees without any computation: replicas that differ, recomputed
// activations that differ, values that are not finite, tensors that are missing or do not fit.
type Finding struct {
	Module string // or parameter
	Says   string // a sentence
	Wrong  bool   // else it is worth knowing
	Ranks  []int
	Mesh   string // the mesh dimension along which replicas differ
	Error  float64
}

// RankTokens says which tokens of the batch a rank held, as indices of the flattened batch.
type RankTokens struct {
	Rank       int
	Coordinate map[string]int // by mesh dimension
	Tokens     []int
}

// Findings returns what has been found so far: some shows only when tensors are read.
func (f *Folder) Findings() []Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.findings)
}

func (f *Folder) find(finding Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := func(other Finding) bool { return other.Module == finding.Module && other.Says == finding.Says }
	if !slices.ContainsFunc(f.findings, same) {
		f.findings = append(f.findings, finding)
	}
}

// Close closes all files.
func (f *Folder) Close() error {
	var err error
	for _, close := range f.closes {
		err = errors.Join(err, close())
	}
	return err
}
