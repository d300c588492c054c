package checkpoint

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A model of a disk: what a power cut may leave of a sequence of file operations.

// node is a file or a folder.
type node struct {
	entries map[string]int // of a folder, by name; nil for a file
	data    []byte
	synced  int // bytes of data that are durable
}

// tree is the nodes by number; 0 is the folder that all paths begin in.
type tree map[int]*node

func (t tree) clone() tree {
	c := tree{}
	for id, n := range t {
		c[id] = &node{maps.Clone(n.entries), slices.Clone(n.data), n.synced}
	}
	return c
}

// operation is one call of Files or Output, with nodes in place of paths, which renames change.
type operation struct {
	kind     string // mkdir, create, rename, remove, syncdir, write or sync
	dir, id  int    // the folder whose names change, and the node that is named, written or synced
	name, to string
	data     []byte
}

// names reports whether the operation changes the names in a folder.
func (o operation) names() bool {
	return o.kind == "mkdir" || o.kind == "create" || o.kind == "rename" || o.kind == "remove"
}

// apply does an operation. Those before it may have been lost, and then it finds less than it
// expects.
func (t tree) apply(o operation) {
	switch o.kind {
	case "mkdir", "create":
		t[o.dir].entries[o.name] = o.id
	case "remove":
		if t[o.dir].entries[o.name] == o.id {
			delete(t[o.dir].entries, o.name)
		}
	case "rename":
		if t[o.dir].entries[o.name] == o.id {
			delete(t[o.dir].entries, o.name)
			t[o.dir].entries[o.to] = o.id
		}
	case "write":
		t[o.id].data = append(t[o.id].data, o.data...)
	case "sync":
		t[o.id].synced = len(t[o.id].data)
	}
}

// cut is a way in which a power cut loses what is not durable.
type cut struct {
	names float64 // share of the changes of names that is kept, in their order
	data  string  // keep, lose, zero, or torn: keep, but for the last write
	torn  float64 // share of the last write that is kept
	below bool    // all changes of names in other folders than the first are kept
}

// after returns the disk after the first n operations and a power cut.
func (t tree) after(ops []operation, n int, c cut) tree {
	t = t.clone()
	for _, o := range ops[:n] {
		if o.kind == "mkdir" {
			t[o.id] = &node{entries: map[string]int{}}
		} else if o.kind == "create" {
			t[o.id] = &node{}
		}
	}
	volatile := 0
	durable := make([]bool, n)
	for i, o := range ops[:n] {
		durable[i] = !o.names() || slices.ContainsFunc(ops[i:n], func(s operation) bool { return s.kind == "syncdir" && s.id == o.dir })
		if !durable[i] {
			volatile++
		}
	}
	kept := int(c.names * float64(volatile))
	last := -1
	for i, o := range ops[:n] {
		if !durable[i] && !(c.below && o.dir != 0) {
			if kept == 0 {
				continue
			}
			kept--
		}
		if o.kind == "write" {
			last = i
		}
		t.apply(o)
	}
	for id, f := range t {
		switch unsynced := f.data[f.synced:]; c.data {
		case "lose":
			f.data = f.data[:f.synced]
		case "zero":
			clear(unsynced)
		case "torn":
			if last >= 0 && ops[last].id == id && len(unsynced) > 0 {
				f.data = f.data[:len(f.data)-int((1-c.torn)*float64(len(ops[last].data)))]
			}
		}
	}
	return t
}

// hashSeed is the same for all that are compared.
var hashSeed = maphash.MakeSeed()

// write makes the tree's folder id at path. hash identifies its content without making it.
func (t tree) write(tb testing.TB, id int, path string) {
	tb.Helper()
	n := t[id]
	if n.entries == nil {
		if err := os.WriteFile(path, n.data, 0o600); err != nil {
			tb.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		tb.Fatal(err)
	}
	for name, child := range n.entries {
		t.write(tb, child, filepath.Join(path, name))
	}
}

func (t tree) hash(id int) uint64 {
	var all maphash.Hash
	all.SetSeed(hashSeed)
	n := t[id]
	all.Write(n.data)
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		fmt.Fprintf(&all, "/%s %x", name, t.hash(n.entries[name]))
	}
	return all.Sum64()
}

// recorder is the disk, and writes down what is done to it below the folder root.
type recorder struct {
	Disk
	root string
	now  tree // as the running program sees it
	ops  []operation
	next int
}

// record starts with the folder root as it is, all of it durable.
func record(tb testing.TB, root string) (r *recorder, start tree) {
	tb.Helper()
	r = &recorder{root: root, now: tree{}}
	var add func(path string) int
	add = func(path string) int {
		id := r.next
		r.next++
		entries, err := os.ReadDir(path)
		if err != nil {
			data, err := os.ReadFile(path)
			if err != nil {
				tb.Fatal(err)
			}
			r.now[id] = &node{data: data, synced: len(data)}
			return id
		}
		r.now[id] = &node{entries: map[string]int{}}
		for _, e := range entries {
			r.now[id].entries[e.Name()] = add(filepath.Join(path, e.Name()))
		}
		return id
	}
	add(root)
	return r, r.now.clone()
}

// locate returns the folder that path lies in, and the node that it names, -1 if there is none.
func (r *recorder) locate(path string) (dir int, name string, id int) {
	rest := strings.TrimPrefix(path, r.root)
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		if id != 0 {
			dir = id
		}
		name = part
		child, ok := r.now[dir].entries[part]
		if id = child; !ok {
			id = -1
		}
	}
	return dir, name, id
}

func (r *recorder) add(o operation) {
	if o.kind == "mkdir" {
		r.now[o.id] = &node{entries: map[string]int{}}
	} else if o.kind == "create" {
		r.now[o.id] = &node{}
	}
	r.now.apply(o)
	r.ops = append(r.ops, o)
}

func (r *recorder) made(kind, path string) int {
	dir, name, _ := r.locate(path)
	id := r.next
	r.next++
	r.add(operation{kind: kind, dir: dir, id: id, name: name})
	return id
}

func (r *recorder) Create(path string) (Output, error) {
	out, err := r.Disk.Create(path)
	if err != nil {
		return nil, err
	}
	return &recordedOutput{out, r, r.made("create", path)}, nil
}

func (r *recorder) Mkdir(path string) error {
	if err := r.Disk.Mkdir(path); err != nil {
		return err
	}
	r.made("mkdir", path)
	return nil
}

func (r *recorder) Rename(from, to string) error {
	if err := r.Disk.Rename(from, to); err != nil {
		return err
	}
	dir, name, id := r.locate(from)
	r.add(operation{kind: "rename", dir: dir, id: id, name: name, to: filepath.Base(to)})
	return nil
}

func (r *recorder) Remove(path string) error {
	if err := r.Disk.Remove(path); err != nil {
		return err
	}
	dir, name, id := r.locate(path)
	r.add(operation{kind: "remove", dir: dir, id: id, name: name})
	return nil
}

func (r *recorder) SyncDir(path string) error {
	id := 0
	if path != r.root {
		_, _, id = r.locate(path)
	}
	r.add(operation{kind: "syncdir", id: id})
	return nil
}

type recordedOutput struct {
	Output
	r  *recorder
	id int
}

func (o *recordedOutput) Write(p []byte) (int, error) {
	o.r.add(operation{kind: "write", id: o.id, data: bytes.Clone(p)})
	return o.Output.Write(p)
}

func (o *recordedOutput) Sync() error {
	o.r.add(operation{kind: "sync", id: o.id})
	return nil
}
