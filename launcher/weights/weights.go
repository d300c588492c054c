// Package weights reads the weights of a model in this program's or in Hugging Face's files, and
// writes them under the names and in the files of Hugging Face.
//
// A source is a folder of one of three kinds: a run (its newest checkpoint is used), a checkpoint,
// or a Hugging Face model (config.json, and model.safetensors or the shards that
// model.safetensors.index.json names). A source holds only names and shapes in memory. Every rank
// reads the pieces that it needs.
package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/moe"
)

// Tensor describes a tensor of a source under its Hugging Face name.
type Tensor struct {
	Name  string
	DType string // of its elements in the files, as in package safetensors
	Shape []int  // must not be modified
}

// elements returns the number of elements, which was checked when the Tensor was created.
func (t Tensor) elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// entry is a tensor of a source.
type entry struct {
	Tensor

	// floats fills dst with elements [offset, offset+len(dst)) in row-major order.
	floats func(dst []float32, offset int64) error
}

// Source is an open folder of weights. It is safe for concurrent use until Close.
type Source struct {
	path   string
	config moe.Config
	json   []byte   // config.json unchanged; nil for a checkpoint
	family string   // its model_type
	notes  []string // see Notes

	tokenizer string // from a checkpoint's configuration, as the next one
	endToken  string
	entries   map[string]entry
	opened    []io.Closer
}

// expected says what a source may be.
const expected = "expected the folder of a run or of a checkpoint, or that of a Hugging Face model (config.json, and model.safetensors or model.safetensors.index.json with its shards)"

// Open opens the weights in the folder path and checks that they suffice for the model of its
// configuration. It verifies a checkpoint completely, as described in package checkpoint; damaged
// ones are not set aside. It refuses a Hugging Face model with tensors that the configuration does
// not describe.
func Open(path string) (*Source, error) {
	hf, err := isHuggingFace(path)
	if err != nil {
		return nil, err
	}
	if hf {
		return open(path, (*Source).openHuggingFace)
	}
	return open(path, (*Source).openCheckpoint)
}

func open(path string, kind func(*Source) error) (*Source, error) {
	s := &Source{path: path, entries: map[string]entry{}}
	err := kind(s)
	if err == nil {
		err = s.fits()
	}
	if err == nil && s.json != nil {
		err = s.account()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ReadConfig returns the model of the weights in the folder path. It reads little of them.
func ReadConfig(path string) (moe.Config, error) {
	hf, err := isHuggingFace(path)
	if err != nil {
		return moe.Config{}, err
	}
	if !hf {
		c, _, err := readCheckpoint(path)
		return c.Model, err
	}
	s, err := Open(path)
	if err != nil {
		return moe.Config{}, err
	}
	return s.config, s.Close()
}

// isHuggingFace reports whether path should be treated as the folder of a Hugging Face model, not
// of this program.
func isHuggingFace(path string) (bool, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, expected)
	}
	if !stat.IsDir() {
		return false, fmt.Errorf("%s is not a folder: %s", path, expected)
	}
	_, err = os.Lstat(filepath.Join(path, configName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return err == nil, nil
}

// fits returns an error if the configured model is far larger than the tensors, before memory is
// allocated for it. Loading reports missing tensors.
func (s *Source) fits() error {
	there := int64(0)
	for _, e := range s.entries {
		there += e.elements()
	}
	need, experts := s.config.Count().Total, s.config.MoELayers()*s.config.Experts
	if need > 2*there+1<<20 || experts > len(s.entries)+1<<12 {
		return fmt.Errorf("%s: %s describes a model of %d parameters and %d experts in all layers, but the %d tensors have %d elements", s.path, s.configName(), need, experts, len(s.entries), there)
	}
	return nil
}

// configName returns the name of the file with the configuration.
func (s *Source) configName() string {
	if s.json == nil {
		return "config.toml"
	}
	return configName
}

// Config returns the model of the weights. For a Hugging Face folder, training settings have their
// defaults, and multi-token prediction only if its weights exist.
func (s *Source) Config() moe.Config { return s.config }

// Notes says what was assumed of a Hugging Face folder, and what in it is not used.
func (s *Source) Notes() []string { return s.notes }

// Path returns the folder of the weights. For a run it is that of the checkpoint.
func (s *Source) Path() string { return s.path }

// Tensors lists all tensors by name. Scales of FP8 blocks are part of the tensor that they scale.
func (s *Source) Tensors() []Tensor {
	all := make([]Tensor, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e.Tensor)
	}
	slices.SortFunc(all, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ReadInto fills dst with elements [offset, offset+len(dst)) of a tensor, in row-major order, as
// FP32. BF16, F16 and block-scaled FP8 are converted. It returns an error if there is no such
// tensor, or if it has another shape. A range outside the shape panics.
func (s *Source) ReadInto(name string, shape []int, offset int64, dst []float32) error {
	e, ok := s.entries[name]
	if !ok {
		return fmt.Errorf("%s: there is no tensor %q of shape %v: are these the weights of another model?", s.path, name, shape)
	}
	if !slices.Equal(e.Shape, shape) {
		return fmt.Errorf("%s: tensor %q has shape %v, the model's has %v: are these the weights of another model?", s.path, name, e.Shape, shape)
	}
	if total := e.elements(); offset < 0 || offset > total || int64(len(dst)) > total-offset {
		panic(fmt.Sprintf("weights: elements [%d, %d) of %q, which has %d", offset, offset+int64(len(dst)), name, total))
	}
	if err := e.floats(dst, offset); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return nil
}

// Digest identifies the weights by the names, the shapes and the first elements of all tensors.
// Reading all elements would take as long as loading the model.
func (s *Source) Digest() (string, error) {
	h, first := sha256.New(), make([]float32, 64)
	for _, t := range s.Tensors() {
		part := first[:min(int64(len(first)), t.elements())]
		if err := s.ReadInto(t.Name, t.Shape, 0, part); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %v %x\n", t.Name, t.Shape, part)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Close closes the files. No method may be called afterwards.
func (s *Source) Close() error {
	var err error
	for _, c := range s.opened {
		err = errors.Join(err, c.Close())
	}
	return err
}

// chunk is the number of elements in memory at a time.
const chunk = 1 << 18

// isBias reports whether a tensor is a router's selection bias, which is FP32 in all files.
func isBias(name string) bool { return strings.HasSuffix(name, ".e_score_correction_bias") }
