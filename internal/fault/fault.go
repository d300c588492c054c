// Package fault makes the process of a rank fail at a chosen place of the code, for tests of what
// happens then.
//
// The code passes places, at one load of a nil pointer each, until the process is armed. Only a
// launcher that tests itself arms the processes of its ranks: see [Arm].
package fault

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// armed is nil but in the processes of a test.
var armed atomic.Pointer[injector]

// Point passes a place, where an order to fail may be due.
func Point(p Place) {
	if i := armed.Load(); i != nil {
		i.pass(p, nil)
	}
}

// Touch passes a place with data that are in use there, which an order may change; without any it
// does nothing.
func Touch(p Place, data []byte) {
	if i := armed.Load(); i != nil && len(data) > 0 {
		i.pass(p, data)
	}
}

// Try is Touch for what can fail by itself: it returns the error that an order asks for.
func Try(p Place, data []byte) error {
	if i := armed.Load(); i != nil && len(data) > 0 {
		return i.pass(p, data)
	}
	return nil
}

// Armed says whether this process may be ordered to fail.
func Armed() bool { return armed.Load() != nil }

// injector carries out orders.
type injector struct {
	folder string // for notes and more orders; empty: neither
	passed [numPlaces]atomic.Int64
	order  atomic.Pointer[due]
	slow   atomic.Bool
	free   atomic.Int64 // Unix nanoseconds: since when a slow process works
}

// due is an order and the number of the passing from which on it is.
type due struct {
	Order
	at int64
}

// give makes an order the one to be carried out, counted from now. The place may be passed
// meanwhile.
func (i *injector) give(o Order) { i.order.Store(&due{o, i.passed[o.Place].Load() + o.Count}) }

func (i *injector) pass(p Place, data []byte) error {
	n := i.passed[p].Add(1)
	if i.slow.Load() {
		i.dawdle(p)
	}
	if d := i.order.Load(); d != nil && d.Place == p && d.at <= n && i.order.CompareAndSwap(d, nil) {
		i.note(d.Order)
		return i.strike(d.Order, spoil{data, uint64(n)})
	}
	return nil
}

// spoil is data to be changed, and a number that says where.
type spoil struct {
	data []byte
	n    uint64
}

// at is a place in the data, from 0 to below n.
func (s spoil) at(n int) int { return int(rand.New(rand.NewPCG(s.n, 0)).Uint64N(uint64(n))) }

// flip turns one bit around.
func (s spoil) flip() {
	bit := s.at(8 * len(s.data))
	s.data[bit/8] ^= 1 << (bit % 8)
}

// nan makes some numbers NaN: in all formats with one, it has all bits set.
func (s spoil) nan() {
	const some = 8 // bytes: one number of the widest, aligned for all
	from := s.at(max(1, len(s.data)/some)) * some
	for i := from; i < min(from+some, len(s.data)); i++ {
		s.data[i] = 0xff
	}
}

// slowdown is how many times longer a slow process takes.
const slowdown = 10

// dawdle makes the work since the last meeting of the ranks take longer; waiting in it does not
// count.
func (i *injector) dawdle(p Place) {
	switch p {
	case BeforeMeeting:
		if since := i.free.Load(); since > 0 {
			time.Sleep((slowdown - 1) * time.Since(time.Unix(0, since)))
		}
	case AfterMeeting:
		i.free.Store(time.Now().UnixNano())
	}
}
