package trainer

// The guard of what is small and stays as it is: configuration, tables, shapes and counters. A flip
// there is rare, but every later step would compute with it. Components list such memory, which has
// a copy with a checksum. What differs from the copy is restored, and the step is computed again.

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/zeebo/xxh3"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// constants is memory that does not change between two calls of take.
type constants struct {
	listed  []listedValue
	regions []constantRegion
	copies  []byte // of all regions, one after the other
	sum     uint64 // of copies
}

type listedValue struct{ name, value any }

// constantRegion is adjacent memory.
type constantRegion struct {
	name   any
	memory []byte
}

// list adds values: slices, and pointers to others. What belongs to a value is the memory of its
// fields and elements, also of those that its pointers and slices lead to. The elements of tensors,
// the characters of strings, and fields with the tag guard:"varies" do not.
func (c *constants) list(name string, values ...any) {
	for _, v := range values {
		c.listed = append(c.listed, listedValue{name, v})
	}
}

// take copies the memory as it is now.
func (c *constants) take() {
	c.regions, c.copies = c.regions[:0], c.copies[:0]
	for _, l := range c.listed {
		c.add(l.name, reflect.ValueOf(l.value))
	}
	for _, r := range c.regions {
		c.copies = append(c.copies, r.memory...)
	}
	c.sum = xxh3.Hash(c.copies)
}

// add adds the memory of a value.
func (c *constants) add(name any, v reflect.Value) {
	t := v.Type()
	switch {
	case isPlain(t):
		c.addBytes(name, unsafe.Pointer(v.UnsafeAddr()), int(t.Size()))
	case t.Kind() == reflect.Pointer:
		if own := t.Elem().PkgPath(); !v.IsNil() && (own == "" || strings.HasPrefix(own, "spmoe/")) {
			c.add(name, v.Elem())
		}
	case t.Kind() == reflect.Interface:
		if held := v.Elem(); held.Kind() == reflect.Struct { // in memory of its own
			words := (*[2]unsafe.Pointer)(unsafe.Pointer(v.UnsafeAddr()))
			c.add(name, reflect.NewAt(held.Type(), words[1]).Elem())
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("guard") != "varies" {
				c.add(name, v.Field(i))
			}
		}
	case t.Kind() == reflect.Slice && isPlain(t.Elem()):
		c.addBytes(name, v.UnsafePointer(), v.Len()*int(t.Elem().Size()))
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		for i := range v.Len() {
			c.add(name, v.Index(i))
		}
	}
}

func (c *constants) addBytes(name any, at unsafe.Pointer, n int) {
	c.regions = append(c.regions, constantRegion{name, unsafe.Slice((*byte)(at), n)})
}

// isPlain reports whether values of a type are numbers, truth values, or made of these only.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64 && t.Kind() != reflect.Uintptr
}

// check restores what has changed, and names it. It fails if a copy has changed as well, because
// nothing then tells which one is right.
func (c *constants) check() (changed []string, err error) {
	at := 0
	for _, r := range c.regions {
		saved := c.copies[at:][:len(r.memory)]
		at += len(r.memory)
		if bytes.Equal(saved, r.memory) {
			continue
		}
		if xxh3.Hash(c.copies) != c.sum { // it is the copy, unless both have changed
			other := slices.Clone(saved)
			if copy(saved, r.memory); xxh3.Hash(c.copies) != c.sum {
				copy(saved, other)
				return nil, fmt.Errorf("%v and their copy have changed in memory: this machine's memory is not reliable: resume from the last checkpoint (--resume)", r.name)
			}
			continue
		}
		copy(r.memory, saved)
		if name := fmt.Sprint(r.name); !slices.Contains(changed, name) {
			changed = append(changed, name)
		}
	}
	return changed, nil
}

// constantGuard holds the memory of a rank that only the end of a step changes, or nothing.
type constantGuard struct {
	on       bool
	ex       *tensor.Exec
	data     *dataLoader
	settings constants
	update   constants // settings that the update reads, after the others were checked
	counters constants // of the optimizer
	progress constants
}

// newConstantGuard lists the memory of a rank.
func newConstantGuard(r *rank) *constantGuard {
	cfg := &r.job.cfg
	g := &constantGuard{ex: r.ex, data: r.data, on: cfg.Guard.Memory > 0 || cfg.Guard.Activations > 0 || cfg.Guard.Replay > 0}
	for _, m := range r.models() {
		m.Constants(g.settings.list)
	}
	r.data.constants(g.settings.list)
	g.settings.list("the division of the ranks", &r.mesh.Layout, &r.first, &r.memory.layout)
	g.settings.list("the settings of the guards", &r.gradients.Guard, &r.activations.period, &r.memory.period, &r.stateGuard.on)
	g.update.list("the configuration", cfg)
	g.update.list("the settings of the balancer", &r.balancer.experts, r.balancer.layers)
	r.optim.Constants(g.update.list)
	r.optim.Counters(g.counters.list)
	g.progress.list("the progress", &r.progress)
	return g
}

// begin takes the copies, before the first step.
func (g *constantGuard) begin() {
	if g.on {
		g.settings.take()
		g.update.take()
	}
	g.next()
}

// next takes the copies of what a step has changed.
func (g *constantGuard) next() {
	if g.on {
		g.counters.take()
		g.progress.take()
	}
}

// check restores what has changed during the passes of a step. It returns the names. They include
// the tokens of the batch, which are loaded again.
func (g *constantGuard) check() (changed []string, err error) {
	if !g.on {
		return nil, nil
	}
	defer g.ex.Enter(g.ex.Enter(profile.Guards))
	for _, c := range []*constants{&g.settings, &g.update} {
		names, err := c.check()
		if err != nil {
			return nil, err
		}
		changed = append(changed, names...)
	}
	more, err := g.between()
	if changed = append(changed, more...); !g.data.intact() {
		changed = append(changed, "the tokens of the batch")
	}
	return changed, err
}

// between restores what has changed since the last step, before it is saved. It returns the names.
func (g *constantGuard) between() (changed []string, err error) {
	if changed, err = g.counters.check(); err != nil {
		return nil, err
	}
	more, err := g.progress.check()
	return append(changed, more...), err
}
