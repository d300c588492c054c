package guard

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

	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Constants is memory that does not change between two calls of take.
type Constants struct {
	listed  []listedValue
	regions []constantRegion
	Copies  []byte // of all regions, one after the other
	sum     uint64 // of copies
}

type listedValue struct{ name, value any }

// constantRegion is adjacent memory.
type constantRegion struct {
	name   any
	memory []byte
}

// List adds values: slices, and pointers to others. What belongs to a value is the memory of its
// fields and elements, also of those that its pointers and slices lead to. The elements of tensors,
// the characters of strings, and fields with the tag guard:"varies" do not.
func (c *Constants) List(name string, values ...any) {
	for _, v := range values {
		c.listed = append(c.listed, listedValue{name, v})
	}
}

// Take copies the memory as it is now.
func (c *Constants) Take() {
	c.regions, c.Copies = c.regions[:0], c.Copies[:0]
	for _, l := range c.listed {
		c.add(l.name, reflect.ValueOf(l.value))
	}
	for _, r := range c.regions {
		c.Copies = append(c.Copies, r.memory...)
	}
	c.sum = xxh3.Hash(c.Copies)
}

// add adds the memory of a value.
func (c *Constants) add(name any, v reflect.Value) {
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

func (c *Constants) addBytes(name any, at unsafe.Pointer, n int) {
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

// Check restores what has changed, and names it. It fails if a copy has changed as well, because
// nothing then tells which one is right.
func (c *Constants) Check() (changed []string, err error) {
	at := 0
	for _, r := range c.regions {
		saved := c.Copies[at:][:len(r.memory)]
		at += len(r.memory)
		if bytes.Equal(saved, r.memory) {
			continue
		}
		if xxh3.Hash(c.Copies) != c.sum { // it is the copy, unless both have changed
			other := slices.Clone(saved)
			if copy(saved, r.memory); xxh3.Hash(c.Copies) != c.sum {
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

// ConstantGuard holds the memory of a rank that only the end of a step changes, or nothing.
type ConstantGuard struct {
	On       bool
	Ex       *tensor.Exec
	Data     *state.DataLoader
	Settings Constants
	Update   Constants // settings that the update reads, after the others were checked
	Counters Constants // of the optimizer
	Progress Constants
}

// Begin takes the copies, before the first step.
func (g *ConstantGuard) Begin() {
	if g.On {
		g.Settings.Take()
		g.Update.Take()
	}
	g.Next()
}

// Next takes the copies of what a step has changed.
func (g *ConstantGuard) Next() {
	if g.On {
		g.Counters.Take()
		g.Progress.Take()
	}
}

// Check restores what has changed during the passes of a step. It returns the names. They include
// the tokens of the batch, which are loaded again.
func (g *ConstantGuard) Check() (changed []string, err error) {
	if !g.On {
		return nil, nil
	}
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	for _, c := range []*Constants{&g.Settings, &g.Update} {
		names, err := c.Check()
		if err != nil {
			return nil, err
		}
		changed = append(changed, names...)
	}
	more, err := g.between()
	if changed = append(changed, more...); !g.Data.Intact() {
		changed = append(changed, "the tokens of the batch")
	}
	return changed, err
}

// between restores what has changed since the last step, before it is saved. It returns the names.
func (g *ConstantGuard) between() (changed []string, err error) {
	if changed, err = g.Counters.Check(); err != nil {
		return nil, err
	}
	more, err := g.Progress.Check()
	return append(changed, more...), err
}
