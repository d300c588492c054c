package trainer

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

// StateSum returns the SHA-256 of the weights, moments and selection biases in a checkpoint, in
// hexadecimal digits. It covers the name, type, shape and elements of each tensor, in the order of
// their names. So it does not depend on how ranks divided them.
func StateSum(r *checkpoint.Reader) (string, error) {
	h, tensors := sha256.New(), r.Tensors()
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		fmt.Fprintf(h, "%q %s %v\n", name, r.DType(name), tensors[name])
		if err := addTensor(h, r, name, tensors[name]); err != nil {
			return "", fmt.Errorf("%s: %w", r.Path(), err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sumElements is the number of elements that are read at a time.
const sumElements = 1 << 20

// addTensor adds the elements of a tensor to h, little-endian.
func addTensor(h hash.Hash, r *checkpoint.Reader, name string, shape []int) error {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var bytes []byte
	for lo := 0; lo < n; lo += sumElements {
		count := min(sumElements, n-lo)
		p := checkpoint.Piece{Name: name, Shape: shape, Offset: int64(lo)}
		if r.DType(name) == safetensors.BF16 {
			p.BF16 = make([]byte, 2*count)
		} else {
			p.Data = make([]float32, count)
		}
		if err := r.ReadInto(p); err != nil {
			return err
		}
		bytes = append(bytes[:0], p.BF16...)
		for _, x := range p.Data {
			b := math.Float32bits(x)
			bytes = append(bytes, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
		}
		h.Write(bytes)
	}
	return nil
}
