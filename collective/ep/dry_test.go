package ep

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// exchanged is what a rank allocates, counts and knows of its rows after some passes of a layer.
type exchanged struct {
	peak, rowsPeak, received, sent, dropped int
	ends, whole, before                     []int32
	sends, receives                         []int
	calls, bytes                            [][]int64 // by communicator and kind
	network                                 int64
}

// dryCase is a layer whose tokens choose experts in turn.
type dryCase struct {
	tokens, slots, experts, hidden int
	dtype                          tensor.DType
	options                        Options
}

// exchange makes the calls of two layers and two passes. set sets a tensor that is passed to them.
// It returns the counts of comms, the first of which counts what goes to other hosts.
func (d dryCase) exchange(s Exchange, ex *tensor.Exec, rows *tensor.Arena, set func(tensor.Tensor), comms ...*collective.Comm) (got exchanged, err error) {
	before := make([]collective.Stats, len(comms))
	for i, c := range comms {
		before[i] = c.Stats()
	}
	sent := comms[0].Sent()
	handles := [2]Handle{{Rows: rows}, {Rows: rows}}
	for range 2 {
		for i := range handles {
			if err := d.pass(s, ex, &handles[i], set); err != nil {
				return got, err
			}
		}
		ex.Reset()
		rows.Reset()
	}
	h := &handles[1]
	got = exchanged{
		peak: ex.Peak(), rowsPeak: rows.Peak(), received: h.Received, sent: h.Sent, dropped: h.Dropped,
		ends: h.GroupEnds, whole: h.Whole, before: h.Before, sends: h.SendCounts, receives: h.RecvCounts,
		network: comms[0].Sent() - sent,
	}
	for i, c := range comms {
		var calls, bytes []int64
		for kind, n := range c.Stats() {
			calls, bytes = append(calls, n.Calls-before[i][kind].Calls), append(bytes, n.Bytes-before[i][kind].Bytes)
		}
		got.calls, got.bytes = append(got.calls, calls), append(got.bytes, bytes)
	}
	return got, nil
}

func (d dryCase) pass(s Exchange, ex *tensor.Exec, h *Handle, set func(tensor.Tensor)) error {
	alloc := func(dtype tensor.DType, dims ...int) tensor.Tensor {
		t := ex.New(dtype, dims...)
		set(t)
		return t
	}
	token := func() tensor.Tensor { return alloc(d.dtype, d.tokens, d.hidden) }
	row := func() tensor.Tensor { return alloc(d.dtype, h.Received, d.hidden) }
	choice := func() tensor.Tensor { return alloc(tensor.FP32, d.tokens, d.slots) }
	a, err := s.StartDispatch(ex, h, token(), alloc(tensor.INT32, d.tokens, d.slots))
	if err == nil {
		err = a.Wait(ex)
	}
	if err != nil {
		return err
	}
	if err := s.Combine(ex, h, row(), choice(), token()); err != nil {
		return err
	}
	a, err = s.StartCombineBackward(ex, h, token(), choice())
	if err == nil {
		err = a.Wait(ex)
	}
	if err != nil {
		return err
	}
	return s.DispatchBackward(ex, h, row(), token())
}

// inTurn assigns experts round-robin, like a router with forced balance. Other tensors are 0,
// because an infinity or a NaN takes more memory to quantize.
func (d dryCase) inTurn(t tensor.Tensor) {
	t.Zero()
	if t.DType() == tensor.INT32 {
		for i := range t.I32() {
			t.I32()[i] = int32(i % d.experts)
		}
	}
}

// newDryExec returns an Exec and an arena for a dry exchange.
func newDryExec() (*tensor.Exec, *tensor.Arena) {
	ex := tensor.NewDryExec()
	return ex, ex.NewArena(0)
}

var dryCases = func() (all []dryCase) {
	for _, o := range []Options{
		{}, bothMXFP8, {Dispatch: MXFP8}, {Capacity: 0.6}, {CombineBackward: MXFP8, Capacity: 0.9},
	} {
		for _, tokens := range []int{0, 29} {
			all = append(all, dryCase{tokens, 3, 16, 64, tensor.BF16, o})
		}
		all = append(all, dryCase{50, 8, 24, 96, tensor.FP32, o}, dryCase{7, 16, 16, 32, tensor.BF16, o})
	}
	return all
}()

func (d dryCase) String() string {
	return fmt.Sprintf("%d tokens, %d of %d experts, %d %v, %+v", d.tokens, d.slots, d.experts, d.hidden, d.dtype, d.options)
}

// run exchanges rows among real ranks, and then on each rank without the others.
func (d dryCase) run(t *testing.T, hosts []int) {
	ranks := 0
	for _, n := range hosts {
		ranks += n
	}
	real, places := make([]exchanged, ranks), make([][][]int, ranks)
	if err := errors.Join(collective.NewHosts(hosts...).Run(func(c *collective.Comm) error {
		s, err := NewOneSided(c, d.experts)
		if err != nil {
			return err
		}
		s.Options, places[c.Rank()] = d.options, c.Hosts()
		real[c.Rank()], err = d.exchange(s, newExec(c), &tensor.Arena{Allocator: c.Allocator()}, d.inTurn, c, s.host)
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	for r, want := range real {
		c := collective.NewDry(places[r], r)
		s := NewDry(c, d.experts, d.options)
		ex, rows := newDryExec()
		got, err := d.exchange(s, ex, rows, func(tensor.Tensor) {}, c, s.Host())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v, rank %d of %v:\n%+v, want\n%+v", d, r, hosts, got, want)
		}
	}
}

// A dry exchange allocates and counts what a real one does.
func TestDry(t *testing.T) {
	for _, d := range dryCases {
		for _, ranks := range []int{1, 2, 4, 8} {
			d.run(t, []int{ranks})
		}
	}
}

// That includes what ranks send to other hosts, and the memory for it in the arenas.
func TestDryBetweenHosts(t *testing.T) {
	for _, d := range dryCases {
		for _, hosts := range [][]int{{1, 1}, {2, 2}, {2, 4, 2}} {
			d.run(t, hosts)
		}
	}
}

// Replicas count the rows of all copies of an expert.
func TestDryReplicas(t *testing.T) {
	const ranks = 4
	for _, d := range dryCases {
		for _, size := range []int{1, 2} { // of a group
			var real [ranks]exchanged
			if err := goroutines(ranks, func(world *collective.Comm) error {
				c, err := world.Split(world.Rank()/size, world.Rank())
				if err != nil {
					return err
				}
				s, err := NewOneSided(c, d.experts)
				if err == nil {
					s.Options = d.options
					err = s.Replicate(world)
				}
				if err != nil {
					return err
				}
				real[world.Rank()], err = d.exchange(s, newExec(c), &tensor.Arena{Allocator: c.Allocator()}, d.inTurn, c, world)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for r, want := range real {
				world := collective.NewDry([][]int{{0, 1, 2, 3}}, r)
				c := collective.NewDry([][]int{[]int{0, 1}[:size]}, r%size)
				s := NewDry(c, d.experts, d.options)
				if err := s.Replicate(world); err != nil {
					t.Fatal(err)
				}
				ex, rows := newDryExec()
				got, err := d.exchange(s, ex, rows, func(tensor.Tensor) {}, c, world)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%v, rank %d in groups of %d:\n%+v, want\n%+v", d, r, size, got, want)
				}
			}
		}
	}
}
