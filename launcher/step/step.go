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
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
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
	batchClass  Class = "batch"
)

// Folder is an opened folder. Its methods may be called concurrently.
type Folder struct {
	Path   string
	Form   string // "step folder", "rank folders", …, for people
	Config []byte // config.json
	Model  *reference.Config
	Info   Info
	Ranks  []*Rank // of a parallel run

	whole  *Rank       // what the folder itself has, for all ranks
	tokens []int       // per micro-batch
	groups [][][]*Rank // per micro-batch: ranks with the same tokens
	closes []func() error

	mu       sync.Mutex
	read     map[key]bool
	findings []Finding
	joining  sync.Mutex
	joined   map[key]entry // what was joined last
}

// Value is a tensor in memory. Integers and booleans are numbers too.
type Value struct {
	reference.Tensor
	DType string // as safetensors names it, such as BF16
}

// Repeat is one run of the model's modules: one of several micro-batches, or of several calls.
type Repeat struct{ MicroBatch, Call int }

// Finding is what the reader sees without any computation: replicas that differ, recomputed
// activations that differ, values that are not finite, tensors that do not fit.
type Finding struct {
	Module string // or parameter
	Says   string // a sentence
	Wrong  bool   // else it is worth knowing
	Ranks  []int
	Mesh   string // the mesh dimension along which replicas differ
	Error  float64
}

// Info is step.json: what the program says of the step. The zero value of a field is "not stated",
// except for counts and the loss scale, which are 1.
type Info struct {
	Format        string      `json:"format"`
	Autocast      string      `json:"autocast"` // "bfloat16"
	Matmul        string      `json:"float32_matmul_precision"`
	FP8           any         `json:"fp8"` // nil: none
	LossValue     *float64    `json:"loss_value"`
	Reduction     string      `json:"reduction"` // "mean", "sum" or "sequence"
	LossScale     float64     `json:"loss_scale"`
	MicroBatches  int         `json:"micro_batches"`
	Ranks         int         `json:"ranks"`
	LabelsShifted bool        `json:"labels_shifted"`
	Auxiliary     []Auxiliary `json:"auxiliary"`
	Layout        any         `json:"layout"`                // of fused experts, text in any form: "gate_up_proj [E, 2I, D]"
	Silent        []string    `json:"silent"`                // modules whose hooks never ran
	Weights       string      `json:"weights"`               // where they are, if not in the folder
	Differs       []string    `json:"recomputation_differs"` // modules
	Accumulation  string      `json:"gradient_accumulation"` // its dtype: "float32"
}

// otherFacts are keys of step.json that say nothing about right and wrong.
const otherFacts = "framework torch device attention compile loss optimizer dtypes non_tensors recomputed grad_dtype"

// Auxiliary is an auxiliary loss of the routers.
type Auxiliary struct {
	Kind        string  `json:"kind"` // "load_balancing", "sequence" or "z"
	Coefficient float64 `json:"coefficient"`
	Padding     bool    `json:"padding"` // padding counts
}

// The largest JSON files: step.json names every module, placement.json every token.
const mostJSON = 256 << 20

// readInfo reads step.json, if it is there. A fact of another type than expected is left out.
func (f *Folder) readInfo(dir string) error {
	f.Info.LossScale, f.Info.MicroBatches = 1, 1
	path := filepath.Join(dir, "step.json")
	text, err := system.ReadFile(path, mostJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keys := map[string]json.RawMessage{}
	if err = errors.Join(err, strictjson.Unmarshal(text, &keys)); err == nil {
		err = json.Unmarshal(text, &f.Info)
	}
	if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		f.find(Finding{Module: "step.json", Says: fmt.Sprintf("%s is a %s and was not read: expected %s", other.Field, other.Value, other.Type)})
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.Info.MicroBatches = max(f.Info.MicroBatches, 1)
	if f.Info.Format != "step-1" && f.Info.Format != "" || f.Info.MicroBatches > 1<<12 {
		return fmt.Errorf("%s: format is %.60q with %d micro-batches: expected step-1, and at most %d", path, f.Info.Format, f.Info.MicroBatches, 1<<12)
	}
	for i := range reflect.TypeFor[Info]().NumField() {
		delete(keys, reflect.TypeFor[Info]().Field(i).Tag.Get("json"))
	}
	maps.DeleteFunc(keys, func(name string, _ json.RawMessage) bool { return slices.Contains(strings.Fields(otherFacts), name) })
	if len(keys) > 0 {
		f.find(Finding{Module: "step.json", Says: fmt.Sprintf("its keys %s were not read", slices.Sorted(maps.Keys(keys)))})
	}
	for _, name := range f.Info.Differs {
		f.find(Finding{Module: name, Wrong: true, Says: "its recomputed forward pass differs from the first: gradients belong to other activations"})
	}
	return nil
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
func (f *Folder) Close() (err error) {
	for _, close := range f.closes {
		err = errors.Join(err, close())
	}
	return err
}
