// Package checkpoint stores the training state of a run, in FP32 or BF16. The number of ranks that
// load it may differ from the number that saved it.
//
// A run folder holds one folder per checkpoint, which appears there complete or not at all:
//
//	step-00000300/
//	    rank-00000-of-00002.safetensors    the pieces that rank 0 saved, each named tensor@offset
//	    rank-00001-of-00002.safetensors
//	    config.toml                        the configuration of the run
//	    tokenizer.json                     its tokenizer, if that is a file
//	    manifest.json                      trainer state, full shapes, sizes, checksums
//
// Shards are plain safetensors, which every Python user can open. Their tensors are 1-D, F32 or
// BF16. The manifest has a CRC32C of every 4 MiB of each file, the checksums that training had of
// the state in a shard (see sums.go), and its own SHA-256.
//
// The package knows no model: it handles named tensors and pieces of them.
package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"spmoe/launcher/checkpoint/safetensors"
)

// ErrNone says that a folder holds no complete checkpoint.
var ErrNone = errors.New("no complete checkpoint")

// Piece is a contiguous range of one logical tensor: elements [Offset, Offset+Len()) of tensor
// Name, flattened row-major. Names start with the kind of state: "master/...", "exp_avg/...",
// "exp_avg_sq/...".
type Piece struct {
	Name   string
	Shape  []int // of the whole tensor; empty for a scalar
	Offset int64 // in elements
	Data   []float32
	BF16   []byte // replaces Data for a BF16 tensor: two bytes per element, little-endian
}

// The bytes per element.
const (
	floatSize = 4
	bf16Size  = 2
)

// Len returns the number of elements.
func (p Piece) Len() int { return len(p.Data) + len(p.BF16)/bf16Size }

// Bytes returns the memory of the elements, which are little-endian.
func (p Piece) Bytes() []byte {
	if p.BF16 != nil {
		return p.BF16
	}
	return bytesOf(p.Data)
}

// dtype returns the element type as safetensors names it.
func (p Piece) dtype() string {
	if p.BF16 != nil {
		return safetensors.BF16
	}
	return safetensors.F32
}

// sizeOf returns the bytes per element of a type that a checkpoint supports, and 0 for others.
func sizeOf(dtype string) int64 {
	return map[string]int64{safetensors.F32: floatSize, safetensors.BF16: bf16Size}[dtype]
}

// check returns an error unless the piece is a range of a valid tensor.
func (p Piece) check() error {
	if p.Name == "" || !utf8.ValidString(p.Name) {
		return fmt.Errorf("tensor %q: a name must be UTF-8 and not empty", p.Name)
	}
	total, err := elements(p.Shape)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	if p.Data != nil && p.BF16 != nil || len(p.BF16)%bf16Size != 0 {
		return fmt.Errorf("tensor %q: a piece of %d FP32 elements and %d bytes of BF16: give one of them, and whole elements", p.Name, len(p.Data), len(p.BF16))
	}
	if p.Offset < 0 || p.Offset > total || int64(p.Len()) > total-p.Offset {
		return fmt.Errorf("tensor %q: a piece of %d elements from %d on leaves shape %v, which has %d",
			p.Name, p.Len(), p.Offset, p.Shape, total)
	}
	return nil
}

// key returns the piece's name in a shard.
func (p Piece) key() string { return p.Name + "@" + strconv.FormatInt(p.Offset, 10) }

// parseKey is the inverse of key.
func parseKey(key string) (name string, offset int64, err error) {
	at := strings.LastIndexByte(key, '@')
	if at > 0 {
		name = key[:at]
		offset, err = strconv.ParseInt(key[at+1:], 10, 64)
	}
	if at <= 0 || err != nil || offset < 0 {
		return "", 0, fmt.Errorf("%q is not the name of a piece: expected tensor@offset", key)
	}
	return name, offset, nil
}

// elements returns the product of the dimensions.
func elements(shape []int) (int64, error) {
	size, err := safetensors.ByteSize(safetensors.F32, shape)
	return size / floatSize, err
}
