package collective

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"spmoe/collective/heap"
)

// calls is one of each kind, by a rank whose buffers lie in its memory. All ranks of a pair may
// meet in it.
var calls = []struct {
	name string
	call func(c *Comm, b buffers) error
}{
	{"barrier", func(c *Comm, _ buffers) error { return c.Barrier() }},
	{"all-gather", func(c *Comm, b buffers) error { return AllGather(c, b.whole, b.part) }},
	{"large all-gather", func(c *Comm, b buffers) error {
		return AllGather(c, b.large, b.large[c.Rank()*len(b.large)/2:][:len(b.large)/2])
	}},
	{"all-gather-v", func(c *Comm, b buffers) error {
		return AllGatherV(c, b.whole, b.more[:1+2*c.Rank()], []int{1, len(b.whole) - 1})
	}},
	{"all-to-all", func(c *Comm, b buffers) error { return AllToAll(c, b.whole, b.more) }},
	{"all-to-all-v", func(c *Comm, b buffers) error {
		return AllToAllV(c, b.whole, []int{2, 2}, []int{0, 2}, b.more, []int{2, 2}, []int{2, 0})
	}},
	{"all-reduce", func(c *Comm, b buffers) error { return AllReduce(c, b.whole, Max) }},
	{"reduce-scatter", func(c *Comm, b buffers) error { return ReduceScatter(c, b.part, b.whole, []int{2, 2}, Sum) }},
	{"split", func(c *Comm, b buffers) error {
		sub, err := c.Split(3, -c.Rank())
		if err == nil && sub != nil { // all of the new board can be reached
			sub.group.board.slot(sub.Size()-1, 1).payload[payloadBytes-1] = 1
		}
		return err
	}},
	{"window", func(c *Comm, b buffers) error {
		w, err := c.Open(KindDispatch, 8, 8, bytesOf(b.whole), bytesOf(b.more))
		if err != nil {
			return err
		}
		for r := range c.Size() {
			clear(w.First(r))
			clear(w.Second(r))
		}
		return w.Close(0)
	}},
}

// buffers are those of a rank: part has half of whole's elements.
type buffers struct{ whole, more, part, large []int64 }

// pair is two ranks of which one, rank 1, has gone wrong: both have come to all meetings for ever,
// and what rank 1 has published can be changed before rank 0 looks.
type pair struct {
	heap  *heap.Heap
	comms [2]*Comm
	bufs  [2]buffers
}

const pairRegion = 256 << 10

func newPair(t testing.TB, file *os.File) *pair {
	t.Helper()
	h, err := heap.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	clear(h.Control())
	p := &pair{heap: h}
	for r := range p.comms {
		w, err := Join(h, r)
		if err != nil {
			t.Fatal(err)
		}
		c := w.Comm(r)
		p.comms[r], p.bufs[r] = c, buffers{shared(c, 4), shared(c, 4), shared(c, 2), shared(c, payloadBytes/4+2)}
	}
	return p
}

// run makes the call on both ranks, and changes what rank 1 has published before rank 0 sees it. It
// returns what rank 0 gets.
func (p *pair) run(call func(c *Comm, b buffers) error, change func(s *slot)) error {
	board := p.comms[0].group.board
	board.arrival(0).round.Store(math.MaxInt64)
	call(p.comms[1], p.bufs[1]) // it finds no call of rank 0
	board.arrival(1).round.Store(math.MaxInt64)
	change(board.slot(1, 1))
	return call(p.comms[0], p.bufs[0])
}

func newPairFile(t testing.TB) *os.File {
	t.Helper()
	file, err := heap.Create(heap.Whole(2), ControlBytes(2), pairRegion, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// Numbers of a call that cannot be are an error that names the rank and what is wrong, whatever is
// called; those that do not matter to the call are not looked at.
func TestBrokenPeer(t *testing.T) {
	all := []string{"barrier", "all-gather", "large all-gather", "all-gather-v", "all-to-all", "all-to-all-v", "all-reduce", "reduce-scatter", "split", "window"}
	buffered := []string{"large all-gather", "all-gather-v", "all-to-all", "all-to-all-v", "all-reduce", "reduce-scatter", "window"}
	typed := buffered[:len(buffered)-1]
	lists := []string{"all-gather-v", "reduce-scatter", "all-to-all-v"}
	file := newPairFile(t)
	for name, test := range map[string]struct {
		calls  []string
		change func(p *pair, s *slot)
		want   string
	}{
		"another number":           {all, func(_ *pair, s *slot) { s.seq = 7 }, "it has number 7"},
		"no such kind":             {all, func(_ *pair, s *slot) { s.kind = 200 }, "there is no such collective"},
		"message too long":         {all, func(_ *pair, s *slot) { s.errLen = 509 }, "its message has 509 bytes"},
		"payload too long":         {all, func(_ *pair, s *slot) { s.payloadLen = payloadBytes + 1 }, "travel with it"},
		"payload too short":        {append(lists, "all-gather"), func(_ *pair, s *slot) { s.payloadLen-- }, "bytes"},
		"buffer before its memory": {buffered, func(_ *pair, s *slot) { s.head.bufs[0].offset = -64 }, "outside of its rank's memory"},
		"buffer of another":        {buffered, func(p *pair, s *slot) { s.head.bufs[0].offset -= pairRegion }, "outside of its rank's memory"},
		"buffer over the end":      {buffered, func(p *pair, s *slot) { s.head.bufs[0].bytes = pairRegion + 8 }, "outside of its rank's memory"},
		"buffer negative":          {buffered, func(p *pair, s *slot) { s.head.bufs[0].bytes = -8 }, "outside of its rank's memory"},
		"buffer between elements":  {typed, func(p *pair, s *slot) { s.head.bufs[0].offset += 4 }, "outside of its rank's memory"},
		"buffer too short":         {typed, func(p *pair, s *slot) { s.head.bufs[0].bytes = 8 }, "its buffer has 1 elements"},
		"place behind its buffer": {[]string{"all-to-all-v"}, func(_ *pair, s *slot) { s.counts(listSendDispls, 2)[0] = 3 },
			"its buffer has 4 elements, not the 5"},
		"place negative":     {[]string{"all-to-all-v"}, func(_ *pair, s *slot) { s.counts(listSendDispls, 2)[0] = -1 }, "2 elements from element -1"},
		"another count":      {[]string{"all-to-all", "all-reduce"}, func(_ *pair, s *slot) { s.head.count = 1 << 60 }, "disagree"},
		"other counts":       {lists, func(_ *pair, s *slot) { s.counts(listRecv, 2)[0] = -1 << 60 }, "disagree"},
		"board behind":       {[]string{"split"}, func(_ *pair, s *slot) { s.head.child = 1 << 50 }, "where it does not fit"},
		"board between line": {[]string{"split"}, func(_ *pair, s *slot) { s.head.child += 8 }, "where it does not fit"},
	} {
		for _, c := range calls {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				p := newPair(t, file)
				defer p.heap.Close()
				applies := slices.Contains(test.calls, c.name)
				err := p.run(c.call, func(s *slot) {
					if c.name == "split" && strings.HasPrefix(name, "board") { // rank 1, which has left early, founds the group
						b := p.comms[1].Allocator().Allocate(boardBytes(2))
						s.head.child, _ = p.heap.Offset(unsafe.Pointer(&b[0]))
					}
					if applies {
						test.change(p, s)
					}
				})
				if c.name == "split" && !strings.HasPrefix(name, "board") && !applies {
					return // rank 1 has founded no group
				}
				switch {
				case !applies && err != nil:
					t.Errorf("sound calls: %v", err)
				case applies && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Errorf("got %v, want an error with %q", err, test.want)
				}
			})
		}
	}
}
