// Package fault makes the process of a rank fail at a chosen place of the code, to test the
// recovery.
//
// The code passes places, which costs one load of a nil pointer each until the process is armed.
// Only a launcher that tests itself arms the processes of its ranks: see [Arm].
package fault

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// armed is nil except in the processes of a test.
var armed atomic.Pointer[injector]

// Point passes a place, where the process fails if an order is due.
func Point(p Place) {
	if i := armed.Load(); i != nil {
		i.pass(p, nil)
	}
}

// Touch passes a place with data in use there, which an order may change. Without data it does
// nothing.
func Touch(p Place, data []byte) {
	if i := armed.Load(); i != nil && len(data) > 0 {
		i.pass(p, data)
	}
}

// Try is Touch for operations that can fail: it returns the error that an order asks for.
func Try(p Place, data []byte) error {
	if i := armed.Load(); i != nil && len(data) > 0 {
		return i.pass(p, data)
	}
	return nil
}

// Armed reports whether this process may be ordered to fail.
func Armed() bool { return armed.Load() != nil }

// injector executes orders.
type injector struct {
	folder string // for notes and further orders; empty: neither
	passed [mostPlaces]atomic.Int64
	order  atomic.Pointer[pending]
	slow   atomic.Bool
	free   atomic.Int64 // Unix nanoseconds: start of the current work of a slow process
}

// pending is an order and the number of the passing from which on it is due.
type pending struct {
	Order
	at int64
}

// give makes an order the current one, counted from now. The place may be passed at the same time.
func (i *injector) give(o Order) { i.order.Store(&pending{o, i.passed[o.Place].Load() + o.Count}) }

func (i *injector) pass(p Place, data []byte) error {
	n := i.passed[p].Add(1)
	if i.slow.Load() {
		i.delay(p)
	}
	if d := i.order.Load(); d != nil && d.Place == p && d.at <= n && i.order.CompareAndSwap(d, nil) {
		i.note(d.Order)
		return i.execute(d.Order, corruption{data, uint64(n)})
	}
	return nil
}

// corruption is data to change, and a random number that selects the position.
type corruption struct {
	data []byte
	n    uint64
}

// at returns a position in the data, from 0 to below n.
func (s corruption) at(n int) int { return int(rand.New(rand.NewPCG(s.n, 0)).Uint64N(uint64(n))) }

// flip inverts one bit.
func (s corruption) flip() {
	bit := s.at(8 * len(s.data))
	s.data[bit/8] ^= 1 << (bit % 8)
}

// nan sets some numbers to NaN: all bits set are a NaN in every format that has one.
func (s corruption) nan() {
	const some = 8 // bytes: one number of the widest format, aligned for all
	from := s.at(max(1, len(s.data)/some)) * some
	for i := from; i < min(from+some, len(s.data)); i++ {
		s.data[i] = 0xff
	}
}

// slowdown is the factor by which a slow process takes longer.
const slowdown = 10

// delay prolongs the work since the last meeting of the ranks. It does not count waiting within
// that time.
func (i *injector) delay(p Place) {
	switch p {
	case BeforeMeeting:
		if since := i.free.Load(); since > 0 {
			time.Sleep((slowdown - 1) * time.Since(time.Unix(0, since)))
		}
	case AfterMeeting:
		i.free.Store(time.Now().UnixNano())
	}
}
