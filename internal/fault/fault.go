// Package fault makes the process of a rank fail at a chosen place of the code, for tests of what happens then.
//
// The code passes places, at one load of a nil pointer each, until the process is armed. Only a launcher that tests itself arms the
// processes of its ranks: see [Arm].
package fault

import (
	"sync/atomic"
	"time"
)

// armed is nil but in the processes of a test.
var armed atomic.Pointer[injector]

// Point passes a place, where an order to fail may be due.
func Point(p Place) {
	if i := armed.Load(); i != nil {
		i.pass(p)
	}
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

// due is an order and the number of the passing at which it is.
type due struct {
	Order
	at int64
}

// give makes an order the one to be carried out, counted from now.
func (i *injector) give(o Order) { i.order.Store(&due{o, i.passed[o.Place].Load() + o.Count}) }

func (i *injector) pass(p Place) {
	n := i.passed[p].Add(1)
	if i.slow.Load() {
		i.dawdle(p)
	}
	if d := i.order.Load(); d != nil && d.Place == p && d.at == n {
		i.note(d.Order)
		i.strike(d.Order)
	}
}

// slowdown is how many times longer a slow process takes.
const slowdown = 10

// dawdle makes the work since the last meeting of the ranks take longer; waiting in it does not count.
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
