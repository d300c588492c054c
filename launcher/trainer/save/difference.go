package save

// Where the states of two runs differ.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/weights"
	"spmoe/tensor"
)

// StateDifference names the parameter in which two states differ most.
//
// If gradients differ, so do moments, and then all later losses, weights and biases. So moments
// count first, then weights, then selection biases. What a wrong gradient changes elsewhere is
// small compared with its own error.
type StateDifference struct {
	Layer  string `json:"layer"`  // "layer 1", "embed_tokens" or "all layers"
	Tensor string `json:"tensor"` // the name of the parameter, or AllGradients
	// ‖a - b‖ / max(‖a‖, ‖b‖), between 0 and 2
	Distance float64 `json:"distance"`
	Tensors  int     `json:"tensors"` // number of tensors that differ
}

// AllGradients stands for the name of a tensor if all gradients differ by the same factor. They do
// if ranks clip them with a wrong norm.
const AllGradients = "all gradients, by one factor"

// CompareStates compares the named tensors of two checkpoints of one model. There must be at least
// one.
func CompareStates(a, b *checkpoint.Reader, names []string) (StateDifference, error) {
	type tensorDistance struct {
		vector, parameter string
		value             float64
	}
	var all []tensorDistance
	for _, name := range names {
		d, err := distance(a, b, name)
		if err != nil {
			return StateDifference{}, err
		}
		vector, parameter, _ := strings.Cut(name, "/")
		all = append(all, tensorDistance{vector, parameter, d})
	}
	slices.SortStableFunc(all, func(x, y tensorDistance) int {
		return cmp.Or(cmp.Compare(stateOrder(x.vector), stateOrder(y.vector)), cmp.Compare(y.value, x.value))
	})
	most := all[0]
	least, same := most.value, 0 // of the same vector
	for _, d := range all {
		if d.vector == most.vector {
			least, same = min(least, d.value), same+1
		}
	}
	diff := StateDifference{LayerOf(most.parameter), most.parameter, most.value, len(all)}
	if stateOrder(most.vector) > 0 || same == 1 || most.value < leastFactor || most.value-least > max(most.value/100, factorRounding) {
		return diff, nil
	}
	n, err := nonzero(a, most.vector)
	if n == same {
		diff.Layer, diff.Tensor = "all layers", AllGradients
	}
	return diff, err
}

// A factor of all gradients is named if it differs from 1 by leastFactor. The rounding of FP32
// changes the distance of a tensor by less than factorRounding.
const leastFactor, factorRounding = 2e-6, 3e-7

// stateOrder orders the vectors of the state: moments, master weights, biases.
func stateOrder(vector string) int {
	return 1 + slices.Index([]string{strings.TrimSuffix(weights.MasterPrefix, "/"), strings.TrimSuffix(weights.BiasPrefix, "/")}, vector)
}

// nonzero returns the number of parameters whose vector of the state is not zero.
func nonzero(r *checkpoint.Reader, vector string) (n int, err error) {
	for name, shape := range r.Tensors() {
		if !strings.HasPrefix(name, vector+"/") {
			continue
		}
		found := false
		err := readParts(r, name, shape, func(p checkpoint.Piece) {
			found = found || slices.ContainsFunc(numbers(p), func(x float32) bool { return x != 0 })
		})
		if err != nil {
			return 0, err
		}
		if found {
			n++
		}
	}
	return n, nil
}

var layerNumber = regexp.MustCompile(`\blayers\.(\d+)\.`)

// LayerOf returns the layer of a parameter, or what it belongs to outside the layers.
func LayerOf(parameter string) string {
	if m := layerNumber.FindStringSubmatch(parameter); m != nil {
		return "layer " + m[1]
	}
	return strings.TrimSuffix(strings.TrimPrefix(parameter, "model."), ".weight")
}

// distance returns ‖a - b‖ / max(‖a‖, ‖b‖) of a tensor; 2 if that is not a number.
func distance(a, b *checkpoint.Reader, name string) (float64, error) {
	var x, y []float32
	for _, one := range []struct {
		r    *checkpoint.Reader
		into *[]float32
	}{{a, &x}, {b, &y}} {
		err := readParts(one.r, name, one.r.Tensors()[name], func(p checkpoint.Piece) { *one.into = append(*one.into, numbers(p)...) })
		if err != nil {
			return 0, err
		}
	}
	if len(x) != len(y) {
		return 2, nil
	}
	var ofX, ofY, apart float64
	for i := range x {
		p, q := float64(x[i]), float64(y[i])
		ofX, ofY, apart = ofX+p*p, ofY+q*q, apart+(p-q)*(p-q)
	}
	if d := math.Sqrt(apart / max(ofX, ofY)); d >= 0 && d <= 2 {
		return d, nil
	}
	return 2, nil
}

// numbers returns the elements of a piece as FP32.
func numbers(p checkpoint.Piece) []float32 {
	if p.BF16 == nil {
		return p.Data
	}
	narrow, wide := tensor.New(tensor.BF16, p.Len()), make([]float32, p.Len())
	copy(narrow.Bytes(), p.BF16)
	tensor.Widen(wide, narrow.BF16())
	return wide
}

// StateSums holds checksums of the weights, moments and selection biases in a checkpoint: SHA-256
// in hexadecimal digits. They do not depend on how ranks divided the tensors.
type StateSums struct {
	All     string            // of the names and checksums of all tensors, in the order of their names
	Tensors map[string]string // by name; of type, shape and elements
}

// ReadStateSums reads a checkpoint.
func ReadStateSums(r *checkpoint.Reader) (StateSums, error) {
	s, all, tensors := StateSums{Tensors: map[string]string{}}, sha256.New(), r.Tensors()
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		h := sha256.New()
		fmt.Fprintf(h, "%s %v\n", r.DType(name), tensors[name])
		if err := addTensor(h, r, name, tensors[name]); err != nil {
			return s, fmt.Errorf("%s: %w", r.Path(), err)
		}
		s.Tensors[name] = hex.EncodeToString(h.Sum(nil))
		fmt.Fprintf(all, "%q %s\n", name, s.Tensors[name])
	}
	s.All = hex.EncodeToString(all.Sum(nil))
	return s, nil
}

// Differing lists the tensors that differ between two states, in the order of their names.
func (s StateSums) Differing(o StateSums) (names []string) {
	for name, sum := range s.Tensors {
		if sum != o.Tensors[name] {
			names = append(names, name)
		}
	}
	for name := range o.Tensors {
		if s.Tensors[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// addTensor adds the elements of a tensor to h, little-endian.
func addTensor(h hash.Hash, r *checkpoint.Reader, name string, shape []int) error {
	var bytes []byte
	return readParts(r, name, shape, func(p checkpoint.Piece) {
		bytes = append(bytes[:0], p.BF16...)
		for _, x := range p.Data {
			b := math.Float32bits(x)
			bytes = append(bytes, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
		}
		h.Write(bytes)
	})
}

// partElements is the number of elements that are read at a time.
const partElements = 1 << 20

// readParts calls f for each part of a tensor in turn, in the type that the checkpoint has.
func readParts(r *checkpoint.Reader, name string, shape []int, f func(checkpoint.Piece)) error {
	n := 1
	for _, d := range shape {
		n *= d
	}
	for lo := 0; lo < n; lo += partElements {
		count := min(partElements, n-lo)
		p := checkpoint.Piece{Name: name, Shape: shape, Offset: int64(lo)}
		if r.DType(name) == safetensors.BF16 {
			p.BF16 = make([]byte, 2*count)
		} else {
			p.Data = make([]float32, count)
		}
		if err := r.ReadInto(p); err != nil {
			return err
		}
		f(p)
	}
	return nil
}
