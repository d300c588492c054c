package save

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
)

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
