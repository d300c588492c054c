package ep

import (
	"math"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// brokenPeer runs a dispatch of 3 tokens, hidden 4, to 4 experts on rank 0 of two, where rank 1
// sends counts as its own, [experts], or to rank 0's experts, and puts up a buffer of so many
// bytes. It returns what rank 0 gets.
func brokenPeer(exchange string, wire Wire, counts []int32, room int) error {
	const tokens, slots, hidden, experts = 3, 2, 4, 4
	var got error
	collective.NewWorld(2).Run(func(c *collective.Comm) error {
		if c.Rank() == 1 {
			if exchange == "standard" {
				return collective.AllToAll(c, make([]int32, experts), counts)
			}
			if err := collective.AllGather(c, make([]int32, 2*experts), counts); err != nil {
				return err
			}
			row, elem := 4*hidden, 4
			if wire == MXFP8 {
				row, elem = hidden+1, 1
			}
			w, err := c.Open(collective.KindDispatch, row, elem, make([]byte, room), nil)
			if err != nil {
				return err
			}
			return w.Close(0)
		}
		s, err := New(exchange, c, experts, Options{Dispatch: wire})
		if err != nil {
			return err
		}
		ex := tensor.NewExec()
		topk := ex.New(tensor.INT32, tokens, slots)
		copy(topk.I32(), []int32{0, 3, 1, 2, 3, -1})
		_, got = dispatch(s, ex, new(Handle), ex.New(tensor.FP32, tokens, hidden), topk)
		return got
	})
	return got
}

// Counts that cannot be, and buffers without room for the rows that counts tell, are errors that
// name the rank.
func TestBrokenCounts(t *testing.T) {
	for _, test := range []struct {
		exchange string
		wire     Wire
		counts   []int32
		room     int
		want     string
	}{
		{"onesided", Plain, []int32{0, 0, 0, 0}, 48, ""},
		{"onesided", MXFP8, []int32{0, 0, 0, 0}, 64 + 3, ""},
		{"onesided", Plain, []int32{0, 0, -1, 0}, 48, "the counts of rank 1 are damaged: number 2 is -1"},
		{"onesided", Plain, []int32{math.MinInt32, 0, 0, 0}, 48, "the counts of rank 1 are damaged: number 0"},
		{"onesided", Plain, []int32{0, 0, math.MaxInt32, 0}, 48, "the counts of rank 1 are damaged: number 2"},
		{"onesided", Plain, []int32{mostRows / 2, mostRows / 2, 0, 0}, 48, "the counts of rank 1 are damaged: number 1"},
		{"onesided", Plain, []int32{0, 0, 0, 0}, 47, "the call of rank 1 is damaged: its buffer has 47 bytes for 3 rows that take 48"},
		{"onesided", Plain, []int32{0, 0, 0, 0}, 0, "the call of rank 1 is damaged"},
		{"onesided", Plain, []int32{0, 0, 0, 1}, 48, "for 4 rows that take 64"},
		{"onesided", MXFP8, []int32{0, 0, 0, 0}, 11, "the call of rank 1 is damaged: its buffer has 11 bytes for 3 rows that take 12"},
		{"onesided", MXFP8, []int32{0, 0, 0, 0}, 64, "the call of rank 1 is damaged: its buffer has 0 bytes for 3 rows that take 3"},
		{"standard", Plain, []int32{-1, 0, 0, 0}, 0, "the counts of rank 1 are damaged: number 0 is -1"},
		{"standard", Plain, []int32{1, math.MaxInt32, 0, 0}, 0, "the counts of rank 1 are damaged: number 1"},
	} {
		err := brokenPeer(test.exchange, test.wire, test.counts, test.room)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s, %v, counts %v, %d bytes: got %v, want %q", test.exchange, test.wire, test.counts, test.room, err, test.want)
		}
	}
}

// A place that changes in memory between two calls is an error of its rank in the next one. No row
// is stored or read there.
func TestDamagedPlaces(t *testing.T) {
	const tokens, slots, hidden, experts = 3, 2, 4, 4
	for name, damage := range map[string]func(h *Handle){
		"row":   func(h *Handle) { h.packed[1] |= 1 << 27 },
		"owner": func(h *Handle) { h.owners[1] |= 1 << 30 },
		"count": func(h *Handle) { h.tokens |= 1 << 20 },
	} {
		err := collective.NewWorld(2).Run(func(c *collective.Comm) error {
			s, err := New("onesided", c, experts, Options{})
			if err != nil {
				return err
			}
			ex, h := tensor.NewExec(), new(Handle)
			topk := ex.New(tensor.INT32, tokens, slots)
			copy(topk.I32(), []int32{0, 3, 1, 2, 3, -1})
			rows, err := dispatch(s, ex, h, ex.New(tensor.FP32, tokens, hidden), topk)
			if err != nil {
				return err
			}
			if c.Rank() == 1 {
				damage(h)
			}
			weights, out := ex.New(tensor.FP32, tokens, slots), ex.New(tensor.FP32, tokens, hidden)
			if h.tokens != tokens { // which the shapes of the arguments show
				weights, out = ex.New(tensor.FP32, h.tokens, slots), ex.New(tensor.FP32, h.tokens, hidden)
			}
			return s.Combine(ex, h, rows, weights, out)
		})
		if err == nil || !strings.Contains(err.Error(), "rank 1: ep: combine: the places of rank 1 are damaged") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
