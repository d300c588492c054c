package heap

import (
	"math"
	"strings"
	"testing"
)

// Whatever stands where a failure is declared, it is read as that of a rank, with a text.
func FuzzFailure(f *testing.F) {
	const ranks = 3
	f.Add(uint64(0), int32(0))
	f.Add(uint64(1)<<32|2, int32(5))
	f.Add(uint64(1)<<32|3, int32(math.MinInt32))
	f.Add(uint64(7)<<32|1, int32(math.MaxInt32))
	f.Add(uint64(8)<<32|1, int32(1))
	f.Add(uint64(2)<<32|4, int32(1))
	f.Add(uint64(math.MaxUint64), int32(2045))
	f.Fuzz(func(t *testing.T, word uint64, length int32) {
		h := New(Whole(ranks), 0)
		h.header.failure.declared.Store(word)
		for i := range h.header.failure.reports {
			h.header.failure.reports[i].length = length
		}
		got, ok := h.Failure()
		if ok != (word != 0) || ok != h.Failed() || got.Rank < 0 || got.Rank >= ranks || got.By < Launcher || got.By >= ranks || len(got.Text) > len(report{}.text) {
			t.Errorf("%#x, %d: %+v, %v", word, length, got, ok)
		}
		sound := uint16(word) >= 1 && uint16(word) <= ranks && uint16(word>>16) <= ranks && word>>32 <= 7
		if damaged := strings.Contains(got.Text, "wrote over the memory"); ok && damaged == sound {
			t.Errorf("%#x: %q", word, got.Text)
		}
	})
}

// Memory of a rank is what lies in its region as a whole, or in its vault, for whatever numbers.
func FuzzWithin(f *testing.F) {
	const ranks, region, vault = 2, 8192, 4096
	file, err := Create(Whole(ranks), 100, region, vault)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	h := open(f, file)
	f.Add(1, h.start+region, int64(region))
	f.Add(0, h.start, int64(region+1))
	f.Add(1, h.start+2*region, int64(vault))
	f.Add(1, h.start+2*region+vault, int64(vault))
	f.Add(-1, int64(math.MinInt64), int64(math.MaxInt64))
	f.Add(1, int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, rank int, offset, size int64) {
		p, ok := h.Within(rank, offset, size)
		in := func(begin, room int64) bool { return size <= room && offset >= begin && offset <= begin+room-size }
		want := rank >= 0 && rank < ranks && size >= 0 &&
			(in(h.start+int64(rank)*region, region) || in(h.start+ranks*region+int64(rank)*vault, vault))
		if ok != want || (p != nil) != ok {
			t.Errorf("rank %d, %d bytes at %d: %v, %v", rank, size, offset, p, ok)
		}
	})
}
