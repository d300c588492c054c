package step

import (
	"errors"

	"spmoe/moe/reference"
)

var errStub = errors.New("not built yet")

type key struct{}
type rank struct{}

func (r Repeat) suffix() string { return "" }

// Open opens a folder. Close it after use.
func Open(dir string) (*Folder, error) { return nil, errStub }

// Weight returns a parameter or a buffer at the start of the step, by its name in Hugging Face's
// form. Experts are named one by one, also if the folder has them fused.
func (f *Folder) Weight(name string) (Value, error) { return Value{}, errStub }

// Gradient returns the gradient of a parameter.
func (f *Folder) Gradient(name string) (Value, error) { return Value{}, errStub }

// After returns a parameter after the step.
func (f *Folder) After(name string) (Value, error) { return Value{}, errStub }

// Activation returns a tensor by the name of a port, with the suffix of a repeat anywhere in it or
// at its end. Dimensions of batch and sequence are one: [tokens, ...].
func (f *Folder) Activation(name string) (Value, error) { return Value{}, errStub }

// DType returns the type of a tensor without reading it, and whether the folder has the tensor.
func (f *Folder) DType(class Class, name string) (string, bool) { return "", false }

// Repeats lists the micro-batches and calls that the folder has activations of, in order. A
// recomputed forward pass is none.
func (f *Folder) Repeats() []Repeat { return nil }

// Batch returns the batch of a repeat.
func (f *Folder) Batch(r Repeat) (*reference.Batch, error) { return nil, errStub }

// Names lists the tensors of a class: activations as Activation takes them, others as the folder's
// files have them.
func (f *Folder) Names(class Class) []string { return nil }

// Unread lists the tensors of a class that were never asked for.
func (f *Folder) Unread(class Class) []string { return nil }

// Incomplete says what of the step is missing: ranks or micro-batches without a folder or tensors.
// Without them, gradients of weights cannot be judged.
func (f *Folder) Incomplete() []string { return nil }

// RankTokens returns the tokens of each rank of a parallel run in a repeat, nil for one rank.
func (f *Folder) RankTokens(r Repeat) []RankTokens { return nil }

// Replicas returns the values of a tensor that should be the same on all ranks, and are not; nil if
// they are. Partial sums that a gradient was not reduced from are such values.
func (f *Folder) Replicas(class Class, name string) ([]Replica, error) { return nil, errStub }
