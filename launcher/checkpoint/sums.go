package checkpoint

// Checksums of the state in training, by kind of state: "master", "exp_avg". Training takes them
// when it writes the state. They are compared when a shard is written, and again when ranks have
// read it. CRC32C only tells what was written; these tell what should have been.
//
// The checksum of elements is the sum of their bits modulo 2^32. So those of two pieces add up to
// that of both, in any order.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Sums are checksums by kind of state, the part of names before the first slash. Without elements
// there is none.
type Sums map[string]uint32

// ErrChanged says that state differs from its checksums.
var ErrChanged = errors.New("differs from its checksums")

// Kind returns the kind of state that a tensor belongs to.
func Kind(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return kind
}

// Sum returns the checksum of a piece.
func (p Piece) Sum() (sum uint32) {
	bytes := p.Bytes()
	if p.BF16 == nil {
		for ; len(bytes) >= 8; bytes = bytes[8:] {
			x := binary.LittleEndian.Uint64(bytes)
			sum += uint32(x) + uint32(x>>32)
		}
	}
	for ; len(bytes) >= 8; bytes = bytes[8:] {
		x := binary.LittleEndian.Uint64(bytes)
		sum += uint32(x&0xffff) + uint32(x>>16&0xffff) + uint32(x>>32&0xffff) + uint32(x>>48)
	}
	size := int(sizeOf(p.dtype()))
	for i, b := range bytes {
		sum += uint32(b) << (8 * (i % size))
	}
	return sum
}

// match returns an error unless pieces have the checksums that training has had. Kinds that these
// lack are not compared.
func (s Sums) match(pieces []Piece) error {
	have := Sums{}
	for _, p := range pieces {
		have[Kind(p.Name)] += p.Sum()
	}
	for _, kind := range slices.Sorted(maps.Keys(s)) {
		if have[kind] != s[kind] {
			return fmt.Errorf("%s %w: it adds up to %08x, training had %08x", kind, ErrChanged, have[kind], s[kind])
		}
	}
	return nil
}

// Sums returns the checksums of each kind of state over all shards. It leaves out kinds that some
// shard has without a checksum.
func (r *Reader) Sums() Sums {
	all := Sums{}
	for _, f := range r.manifest.Shards {
		for kind, sum := range f.Sums {
			all[kind] += sum
		}
	}
	for rank, shard := range r.shards {
		for _, t := range shard.Tensors() {
			if _, known := r.manifest.Shards[rank].Sums[Kind(t.Name)]; !known {
				delete(all, Kind(t.Name))
			}
		}
	}
	return all
}

// Summed reports whether training had checksums of everything that the checkpoint holds.
func (r *Reader) Summed() bool {
	all := r.Sums()
	for name := range r.manifest.Tensors {
		if _, known := all[Kind(name)]; !known {
			return false
		}
	}
	return true
}
