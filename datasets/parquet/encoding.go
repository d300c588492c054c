package parquet

// The encodings of levels and strings.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The encodings.
const (
	plain              = 0
	plainDictionary    = 2
	runLength          = 3 // of levels
	deltaLengthStrings = 6
	dictionaryIndices  = 8
)

var errShort = errors.New("a page ends within its values")

// hybrid reads integers of width bits that are run-length encoded or bit-packed. After the end of
// its bytes they are zero, and short is set.
type hybrid struct {
	b     []byte
	width int

	run    uint64 // integers left in a run
	value  uint32 // of the run
	packed uint64 // integers left in a bit-packed group
	at     uint64 // position of the next one, in bits
	short  bool
}

func (h *hybrid) next() uint32 {
	for h.run == 0 && h.packed == 0 {
		if !h.head() {
			h.short = true
			return 0
		}
	}
	if h.run > 0 {
		h.run--
		return h.value
	}
	h.packed--
	v := bitsAt(h.b, h.at, h.width)
	if h.at += uint64(h.width); h.packed == 0 {
		h.b = h.b[min(uint64(len(h.b)), (h.at+7)/8):]
	}
	return uint32(v)
}

// head reads the header of the next run or group.
func (h *hybrid) head() bool {
	head, n := binary.Uvarint(h.b)
	if n <= 0 {
		return false
	}
	h.b = h.b[n:]
	if head&1 == 0 {
		size := (h.width + 7) / 8
		if len(h.b) < size {
			return false
		}
		var value [4]byte
		copy(value[:], h.b[:size])
		h.b = h.b[size:]
		h.run, h.value = head>>1, binary.LittleEndian.Uint32(value[:])
		return true
	}
	groups := head >> 1
	// Writers may omit the end of the last group.
	if h.width > 0 && groups > (uint64(len(h.b))+uint64(h.width)-1)/uint64(h.width) {
		return false
	}
	h.packed, h.at = min(groups, 1<<40)*8, 0
	return true
}

// bitsAt returns width bits, at most 64, from bit at on, least significant first. Bits beyond the
// end are zero.
func bitsAt(b []byte, at uint64, width int) (v uint64) {
	for got := 0; got < width; {
		i, shift := (at+uint64(got))/8, int((at+uint64(got))%8)
		if i < uint64(len(b)) {
			v |= uint64(b[i]>>shift) << got
		}
		got += 8 - shift
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

// newLevels returns the definition levels of a page, of one bit each.
func newLevels(b []byte) hybrid { return hybrid{b: b, width: 1} }

// countPresent returns the number of levels among n that are 1.
func countPresent(levels []byte, n int64) (present int64, err error) {
	h := newLevels(levels)
	for range n {
		if h.next() == 1 {
			present++
		}
	}
	if h.short {
		return 0, errors.New("a page ends within its definition levels")
	}
	return present, nil
}

// prefixed splits off a part that is preceded by its length in 4 bytes.
func prefixed(b []byte) (part, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:], nil
}

// plainStrings returns n strings in plain encoding, which point into b.
func plainStrings(b []byte, n int64) ([][]byte, error) {
	if n > int64(len(b)/4) {
		return nil, errShort
	}
	all := make([][]byte, n)
	for i := range all {
		var err error
		if all[i], b, err = prefixed(b); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// decode returns a function that returns the n strings of a page, one after the other.
func decode(encoding int64, b []byte, n int64, dictionary [][]byte) (next func() ([]byte, error), err error) {
	switch encoding {
	case plain:
		return func() (s []byte, err error) {
			s, b, err = prefixed(b)
			return s, err
		}, nil
	case plainDictionary, dictionaryIndices:
		return indices(b, n, dictionary)
	case deltaLengthStrings:
		lengths, rest, err := deltaIntegers(b, n)
		return cutter(lengths, rest), err
	}
	return nil, fmt.Errorf("it is in encoding %d, which is not read: write it in plain or dictionary encoding, or continue an older run with the launcher of commit %s", encoding, LastFormats)
}

// indices looks strings up in the dictionary.
func indices(b []byte, n int64, dictionary [][]byte) (func() ([]byte, error), error) {
	if n == 0 {
		return nil, nil
	}
	if len(b) == 0 || b[0] > 32 {
		return nil, errors.New("a page has no width of its dictionary indices, or one of more than 32 bits")
	}
	h := hybrid{b: b[1:], width: int(b[0])}
	return func() ([]byte, error) {
		i := h.next()
		if h.short || uint64(i) >= uint64(len(dictionary)) {
			return nil, fmt.Errorf("a page refers to string %d of a dictionary of %d", i, len(dictionary))
		}
		return dictionary[i], nil
	}, nil
}

// cutter cuts b into strings of the given lengths.
func cutter(lengths []int64, b []byte) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(lengths) == 0 || lengths[0] < 0 || lengths[0] > int64(len(b)) {
			return nil, errShort
		}
		s := b[:lengths[0]]
		b, lengths = b[lengths[0]:], lengths[1:]
		return s, nil
	}
}

// deltaIntegers reads n integers in encoding DELTA_BINARY_PACKED and returns the bytes after them.
func deltaIntegers(b []byte, n int64) (all []int64, rest []byte, err error) {
	if n == 0 && len(b) == 0 {
		return nil, nil, nil
	}
	d := &decoder{b: b}
	block, miniblocks, count, value := d.uvarint(), d.uvarint(), d.uvarint(), d.integer()
	switch {
	case d.err != nil:
		return nil, nil, errShort
	case count != uint64(n):
		return nil, nil, fmt.Errorf("a page has %d lengths of %d strings", count, n)
	case n == 0:
		return nil, d.b[d.at:], nil
	case miniblocks == 0 || block == 0 || block%miniblocks != 0 || block > 1<<20 || miniblocks > 1<<10:
		return nil, nil, fmt.Errorf("a page has blocks of %d integers in %d parts", block, miniblocks)
	}
	per := block / miniblocks
	all = append(all, value)
	for int64(len(all)) < n {
		least := d.integer()
		widths := d.at
		if d.advance(int(miniblocks)); d.err != nil {
			return nil, nil, errShort
		}
		for m := 0; m < int(miniblocks) && int64(len(all)) < n; m++ {
			width := int(d.b[widths+m])
			if width > 64 {
				return nil, nil, fmt.Errorf("a page has integers of %d bits", width)
			}
			start := d.at
			high, size := bits.Mul64(per, uint64(width))
			if d.advance(int((size + 7) / 8)); high != 0 || d.err != nil {
				return nil, nil, errShort
			}
			packed := d.b[start:d.at]
			for i := uint64(0); i < per && int64(len(all)) < n; i++ {
				value += least + int64(bitsAt(packed, i*uint64(width), width))
				all = append(all, value)
			}
		}
	}
	return all, d.b[d.at:], nil
}
