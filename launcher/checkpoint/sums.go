package checkpoint

// Checksums of the state in training, by kind of state: "master", "exp_avg". Training takes them
// when it writes the state. A shard is compared with them when it is written and when it is opened.
// CRC32C only tells what was written; these tell what should have been.
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
	"sync/atomic"

	"spmoe/launcher/checkpoint/safetensors"
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
func (p Piece) Sum() uint32 {
	return sumBytes(p.Bytes(), 0, sizeOf(p.dtype()))
}

// summing computes the checksums of a shard from its bytes, which may come in any order and
// concurrently.
type summing struct {
	spans []summedSpan // by position
	sums  map[string]*atomic.Uint32
}

// summedSpan is a piece: bytes [begin, end) of the file, elements of a size.
type summedSpan struct {
	begin, end, size int64
	sum              *atomic.Uint32
}

func newSumming(tensors []safetensors.Info) *summing {
	s := &summing{sums: map[string]*atomic.Uint32{}}
	for _, t := range tensors {
		kind := Kind(t.Name)
		if s.sums[kind] == nil {
			s.sums[kind] = new(atomic.Uint32)
		}
		s.spans = append(s.spans, summedSpan{t.Offset, t.Offset + t.Size, max(sizeOf(t.DType), 1), s.sums[kind]})
	}
	slices.SortFunc(s.spans, func(a, b summedSpan) int { return int(min(1, max(-1, a.begin-b.begin))) })
	return s
}

// add adds the bytes of the file from position at on. A nil summing adds nothing.
func (s *summing) add(at int64, p []byte) {
	if s == nil {
		return
	}
	first, _ := slices.BinarySearchFunc(s.spans, at, func(span summedSpan, at int64) int { return int(min(1, max(-1, span.end-at-1))) })
	for _, span := range s.spans[min(first, len(s.spans)):] {
		lo, hi := max(span.begin, at), min(span.end, at+int64(len(p)))
		if lo < hi {
			span.sum.Add(sumBytes(p[lo-at:hi-at], lo-span.begin, span.size))
		}
		if span.begin >= at+int64(len(p)) {
			return
		}
	}
}

// sumBytes returns what bytes of elements contribute to their checksum. The first is byte number at
// of the piece.
func sumBytes(p []byte, at, size int64) (sum uint32) {
	for ; len(p) > 0 && (at%size != 0 || int64(len(p)) < 8); p, at = p[1:], at+1 {
		sum += uint32(p[0]) << (8 * (at % size))
	}
	for ; len(p) >= 8; p, at = p[8:], at+8 {
		x := binary.LittleEndian.Uint64(p)
		if size == floatSize {
			sum += uint32(x) + uint32(x>>32)
		} else {
			sum += uint32(x&0xffff) + uint32(x>>16&0xffff) + uint32(x>>32&0xffff) + uint32(x>>48)
		}
	}
	for ; len(p) > 0; p, at = p[1:], at+1 {
		sum += uint32(p[0]) << (8 * (at % size))
	}
	return sum
}

// match returns an error unless the checksums are those that training has had. Kinds that these
// lack are not compared.
func (s *summing) match(want Sums) error {
	if s == nil {
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		have := uint32(0)
		if sum := s.sums[kind]; sum != nil {
			have = sum.Load()
		}
		if have != want[kind] {
			return fmt.Errorf("%s %w: it adds up to %08x, training had %08x", kind, ErrChanged, have, want[kind])
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
