// Package fault makes the process of a rank fail at a chosen place of the code, to test the
// recovery.
//
// The code passes places, which costs one load of a nil pointer each until the process is armed.
// Only a launcher under test arms the processes of its ranks: see [Arm].
package fault

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Variable is the environment variable that arms the process of a rank: orders with blanks between
// them. A launcher sets it for chosen processes and removes it for all others.
const Variable = "SPMOE_FAULT"

// Order tells a process what to do when it passes a place for the Count-th time, from 1.
type Order struct {
	Action Action
	Place  Place
	Count  int
}

// String returns the order's text, such as kill@collective/meet/inside#37.
func (o Order) String() string { return fmt.Sprintf("%s@%s#%d", o.Action, o.Place, o.Count) }

// Action is what a process does to itself.
type Action string

// The actions.
const (
	Kill  Action = "kill"  // SIGKILL
	Exit0 Action = "exit0" // ends as if all work were done
	Exit1 Action = "exit1"
	Panic Action = "panic"
	Loop  Action = "loop" // computes for ever
	NaN   Action = "nan"  // some of the data become NaN
	Flip  Action = "flip" // inverts one bit of the data
	Full  Action = "full" // no space is left on the device
)

// armed is nil except in the processes of a test.
var armed atomic.Pointer[injector]

// injector executes orders.
type injector struct {
	orders []Order
	mu     sync.Mutex
	passed map[Place]int
}

// Arm makes this process execute orders. It may be called once.
func Arm(text string) error {
	i := &injector{passed: map[Place]int{}}
	for _, word := range strings.Fields(text) {
		action, rest, _ := strings.Cut(word, "@")
		place, count, _ := strings.Cut(rest, "#")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return fmt.Errorf("%s: the order is %q, but must be ACTION@PLACE#COUNT", Variable, word)
		}
		i.orders = append(i.orders, Order{Action(action), Place(place), n})
	}
	if !armed.CompareAndSwap(nil, i) {
		panic("fault: this process has been armed before")
	}
	return nil
}

// Armed reports whether this process may be ordered to fail.
func Armed() bool { return armed.Load() != nil }

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

// pass counts a passing, and executes the order that is due. The lock is not held meanwhile: a
// process that loops still passes places in its other threads.
func (i *injector) pass(p Place, data []byte) error {
	i.mu.Lock()
	i.passed[p]++
	n := i.passed[p]
	i.mu.Unlock()
	for _, o := range i.orders {
		if o.Place == p && o.Count == n {
			return o.execute(data)
		}
	}
	return nil
}

// execute carries an order out. The number of the passing chooses the place in the data.
func (o Order) execute(data []byte) error {
	at := func(n int) int { return int(rand.New(rand.NewPCG(uint64(o.Count), 0)).Uint64N(uint64(n))) }
	switch o.Action {
	case Kill:
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
	case Exit0:
		os.Exit(0)
	case Exit1:
		os.Exit(1)
	case Panic:
		panic(fmt.Sprintf("fault: %v", o))
	case Loop:
		for work := 0; ; work++ {
		}
	case NaN:
		// 8 bytes are one number of the widest format, aligned for all. All bits set are a NaN in
		// every format that has one.
		for i, from := 0, 8*at(max(1, len(data)/8)); i < 8 && from+i < len(data); i++ {
			data[from+i] = 0xff
		}
	case Flip:
		bit := at(8 * len(data))
		data[bit/8] ^= 1 << (bit % 8)
	case Full:
		return syscall.ENOSPC
	}
	return nil
}
