package moe

import (
	"spmoe/tensor"
)

// passArenas holds the memory of passes: an arena for each that is in flight at once. Stages on one
// rank share it.
type passArenas struct{ all, idle []*tensor.Arena }

// take returns an empty arena, a new one with room for the given bytes if none is idle.
func (a *passArenas) take(ex *tensor.Exec, bytes int) *tensor.Arena {
	if n := len(a.idle); n > 0 {
		last := a.idle[n-1]
		a.idle = a.idle[:n-1]
		return last
	}
	made := ex.NewArena(bytes)
	a.all = append(a.all, made)
	return made
}

// free makes an arena that a pass has emptied available to others.
func (a *passArenas) free(empty *tensor.Arena) { a.idle = append(a.idle, empty) }

// peak returns the sum of the most bytes that each arena has held.
func (a *passArenas) peak() (sum int) {
	for _, one := range a.all {
		sum += one.Peak()
	}
	return sum
}
