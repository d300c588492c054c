package ep

// Many small random exchanges in a row, whose rows carry marks of where they come from, so that a
// row that is lost, late, misplaced or overwritten is seen at once.

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/tensor"
)

var stress = flag.Int("stress", 20_000, "exchanges (Dispatch and Combine, and for one in four their backward) of TestStress")

func TestStress(t *testing.T) {
	exchanges := *stress
	if testing.Short() {
		exchanges = min(exchanges, 1000)
	}
	const minRanks, maxRanks = 2, 8
	kinds := []struct {
		way
		share float64 // of the exchanges; threads that park in the kernel take their time to give up Go's processors
	}{{way{name: "goroutines", run: goroutines}, 0.97}, {way{name: "mappings", run: mapped}, 0.03}}
	parts := 0.0 // as many times more exchanges as there are fewer ranks
	for np := minRanks; np <= maxRanks; np++ {
		parts += 1 / float64(np)
	}
	for _, by := range kinds {
		for np := minRanks; np <= maxRanks; np++ {
			n := int(math.Ceil(float64(exchanges) * by.share / float64(np) / parts))
			t.Run(fmt.Sprintf("%s/np%d", by.name, np), func(t *testing.T) { stressed(t, by.way, np, n) })
		}
	}
}

// stressed runs n exchanges of np ranks.
func stressed(t *testing.T, by way, np, n int) {
	rows, waited, start := make([]int, np), make([]time.Duration, np), time.Now()
	err := by.run(np, func(c *collective.Comm) error {
		p, err := newStressor(c)
		for i := 0; i < n && err == nil; i++ {
			if err = p.exchange(uint64(i)); err != nil {
				err = fmt.Errorf("exchange %d: %w", i, err)
			}
		}
		rows[c.Rank()], waited[c.Rank()] = p.rows, totalOf(c.Waits())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d exchanges, %d rows, every mark in its place, in %v; a rank waited %v",
		n, totalOf(rows), time.Since(start).Round(time.Millisecond), (totalOf(waited) / time.Duration(np)).Round(time.Millisecond))
}

func totalOf[T int | time.Duration](list []T) (total T) {
	for _, x := range list {
		total += x
	}
	return total
}

// trial is one random exchange. Every rank draws all of it, and so knows what to expect from the
// others.
type trial struct {
	number, experts, slots, hidden int
	dtype                          tensor.DType
	topk                           [][]int32 // [rank][token, slot]
	backward                       bool
}

// Marks fit in 8 bits, so that BF16 holds them and a weight of 256^slot keeps those of different
// slots apart in an FP32 sum.
const (
	maxSlots  = 3
	maxTokens = 4
	marks     = 3
)

// draw makes trial number i of ranks ranks.
func (t *trial) draw(i uint64, ranks int) {
	rng := rand.New(rand.NewPCG(i, uint64(ranks)))
	*t = trial{
		number: int(i), experts: ranks * (1 + rng.IntN(maxPerRank)), slots: 1 + rng.IntN(maxSlots), hidden: marks + rng.IntN(6),
		dtype: []tensor.DType{tensor.FP32, tensor.BF16}[rng.IntN(2)], topk: resize(t.topk, ranks), backward: rng.IntN(4) == 0,
	}
	hot, heat := rng.IntN(t.experts), []int{0, 0, 3, 4}[rng.IntN(4)]   // of 4 choices, so many are the same expert
	masked, empty := []int{0, 1, 1, 4}[rng.IntN(4)], rng.IntN(ranks+2) // of 4 choices, so many are masked; a rank without tokens
	for r := range t.topk {
		tokens := rng.IntN(maxTokens + 1)
		if r == empty {
			tokens = 0
		}
		t.topk[r] = resize(t.topk[r], tokens*t.slots)
		for j := range t.topk[r] {
			switch {
			case rng.IntN(4) < masked:
				t.topk[r][j] = -1
			case rng.IntN(4) < heat:
				t.topk[r][j] = int32(hot)
			default:
				t.topk[r][j] = int32(rng.IntN(t.experts))
			}
		}
	}
}

// source marks a row with where it starts, reply with the expert and the choice that it answers.
func (t *trial) source(rank, token int) [marks]int {
	return [marks]int{rank + 1, token + 1, t.number%255 + 1}
}

func (t *trial) reply(expert int32, choice int) [marks]int {
	return [marks]int{int(expert) + 1, choice + 1, (t.number+choice)%255 + 1}
}

const maxPerRank = 3

// stressor is one rank.
type stressor struct {
	comm      *collective.Comm
	ex        *tensor.Exec
	exchanges [maxPerRank]Exchange // by experts a rank, less one
	handle    Handle
	trial     trial
	chance    *rand.Rand
	rows      int // received
}

func newStressor(c *collective.Comm) (*stressor, error) {
	p := &stressor{comm: c, ex: newExec(c), chance: rand.New(rand.NewPCG(uint64(c.Rank()), 7))}
	for i := range p.exchanges {
		var err error
		if p.exchanges[i], err = NewOneSided(c, c.Size()*(i+1)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// dawdle makes this rank late, now and then so late that the others park.
func (p *stressor) delay() {
	switch p.chance.IntN(256) {
	case 0:
		for start := time.Now(); time.Since(start) < 40*time.Microsecond; {
		}
	case 1, 2, 3, 4, 5, 6, 7, 8:
		runtime.Gosched()
	case 9, 10, 11, 12, 13, 14, 15, 16:
		for range p.chance.IntN(1000) {
			p.chance.Uint64()
		}
	}
}

// exchange takes trial i there and back, in memory that the trial before has used.
func (p *stressor) exchange(i uint64) error {
	p.ex.Reset()
	p.trial.draw(i, p.comm.Size())
	t, mine := &p.trial, p.trial.topk[p.comm.Rank()]
	tokens := len(mine) / t.slots
	s := p.exchanges[t.experts/p.comm.Size()-1]

	topk, x := p.ex.New(tensor.INT32, tokens, t.slots), p.ex.New(t.dtype, tokens, t.hidden)
	copy(topk.I32(), mine)
	for token := range tokens {
		mark(x, token, t.source(p.comm.Rank(), token), 1)
	}
	p.delay()
	rows, err := s.Dispatch(p.ex, &p.handle, x, topk)
	if err != nil {
		return err
	}
	y := p.ex.New(t.dtype, p.handle.Received, t.hidden)
	err = p.eachRow(func(row, rank int, choice int, expert int32) error {
		mark(y, row, t.reply(expert, choice), 1)
		return wantMarks("dispatched", rows, row, t.source(rank, choice/t.slots), 1)
	})
	if err != nil {
		return err
	}
	p.rows += p.handle.Received

	weights, out := p.ex.New(tensor.FP32, tokens, t.slots), p.ex.New(tensor.FP32, tokens, t.hidden)
	for c := range mine {
		weights.F32()[c] = weight(c % t.slots)
	}
	p.delay()
	if err := s.Combine(p.ex, &p.handle, y, weights, out); err != nil {
		return err
	}
	if err := p.wantSums("combined", out, weight); err != nil || !t.backward {
		return err
	}
	return p.backward(s, x, y)
}

// backward is the way of the gradients, which carry the marks of the rows x and the replies y.
func (p *stressor) backward(s Exchange, x, y tensor.Tensor) error {
	t, mine := &p.trial, p.trial.topk[p.comm.Rank()]
	tokens := len(mine) / t.slots
	dweights, dx := p.ex.New(tensor.FP32, tokens, t.slots), p.ex.New(tensor.FP32, tokens, t.hidden)
	p.delay()
	dy, err := s.CombineBackward(p.ex, &p.handle, x, dweights)
	if err != nil {
		return err
	}
	err = p.eachRow(func(row, rank int, choice int, _ int32) error {
		return wantMarks("gradient", dy, row, t.source(rank, choice/t.slots), weight(choice%t.slots))
	})
	if err != nil {
		return err
	}
	for c, expert := range mine {
		want := 0
		if expert >= 0 {
			source, reply := t.source(p.comm.Rank(), c/t.slots), t.reply(expert, c)
			for j := range t.hidden {
				want += source[j%marks] * reply[j%marks]
			}
		}
		if got := dweights.F32()[c]; got != float32(want) {
			return fmt.Errorf("gradient of weight %d is %v, want %d", c, got, want)
		}
	}
	p.delay()
	if err := s.DispatchBackward(p.ex, &p.handle, y, dx); err != nil {
		return err
	}
	return p.wantSums("gradient", dx, func(int) float32 { return 1 })
}

// eachRow calls f for the rows that this rank should have received, in their order, by plain loops
// over all choices of all ranks.
func (p *stressor) eachRow(f func(row, rank, choice int, expert int32) error) error {
	t, row := &p.trial, 0
	perRank := t.experts / p.comm.Size()
	for local := range perRank {
		expert := int32(p.comm.Rank()*perRank + local)
		for rank, topk := range t.topk {
			for choice, e := range topk {
				if e != expert {
					continue
				}
				if row >= p.handle.Received {
					return fmt.Errorf("%d rows were received, want more", row)
				}
				if err := f(row, rank, choice, expert); err != nil {
					return err
				}
				row++
			}
		}
		if int(p.handle.GroupEnds[local]) != row {
			return fmt.Errorf("group of expert %d ends at %d, want %d", expert, p.handle.GroupEnds[local], row)
		}
	}
	if row != p.handle.Received {
		return fmt.Errorf("%d rows were received, want %d", p.handle.Received, row)
	}
	return nil
}

// wantSums checks that the rows of sums have the replies to all choices of their tokens, each times
// its weight.
func (p *stressor) wantSums(what string, sums tensor.Tensor, weight func(slot int) float32) error {
	t := &p.trial
	for token := range sums.Dim(0) {
		var want [marks]int
		for slot := range t.slots {
			choice := token*t.slots + slot
			if e := t.topk[p.comm.Rank()][choice]; e >= 0 {
				for i, m := range t.reply(e, choice) {
					want[i] += m * int(weight(slot))
				}
			}
		}
		if err := wantMarks(what, sums, token, want, 1); err != nil {
			return err
		}
	}
	return nil
}

func weight(slot int) float32 { return float32(int(1) << (8 * slot)) }

// mark fills row i of m with marks times scale, repeated to its end.
func mark(m tensor.Tensor, i int, marked [marks]int, scale float32) {
	for j := range m.Dim(1) {
		v := scale * float32(marked[j%marks])
		if m.DType() == tensor.BF16 {
			m.BF16()[i*m.Dim(1)+j] = tensor.ToBFloat16(v)
		} else {
			m.F32()[i*m.Dim(1)+j] = v
		}
	}
}

func wantMarks(what string, m tensor.Tensor, i int, marked [marks]int, scale float32) error {
	for j := range m.Dim(1) {
		var got float32
		if m.DType() == tensor.BF16 {
			got = m.BF16()[i*m.Dim(1)+j].Float32()
		} else {
			got = m.F32()[i*m.Dim(1)+j]
		}
		if want := scale * float32(marked[j%marks]); got != want {
			return fmt.Errorf("%s row %d has %v in column %d, want %v", what, i, got, j, want)
		}
	}
	return nil
}
