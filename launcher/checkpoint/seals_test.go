package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	seals "spmoe/internal/seal"
	"spmoe/launcher/checkpoint/safetensors"
)

// sealedState is the state of a rank with seals: two vectors of three pieces each, one FP32 and one
// BF16, whose order is not that of their names, and biases. Blocks of seals cross pieces.
func sealedState(rank int) (pieces []Piece, vectors []*Vector) {
	vectors = []*Vector{{Name: "master of the dense group"}, {Name: "exp_avg of the dense group"}, {Name: "biases: 3 of them"}}
	var memory [3][]byte
	add := func(p Piece, vector int) {
		b := p.Bytes()
		for i := 0; i < len(b); i += 2 {
			binary.LittleEndian.PutUint16(b[i:], uint16(rank*7+vector*131+i*i>>3)&0x7eff)
		}
		p.Vector, memory[vector] = vectors[vector], append(memory[vector], b...)
		pieces = append(pieces, p)
	}
	for i, name := range []string{"w.c", "w.a", "w.b"} {
		n := 900*i + 700
		add(Piece{Name: "master/" + name, Shape: []int{2 * n}, Offset: int64(rank * n), Data: make([]float32, n)}, 0)
		add(Piece{Name: "exp_avg/" + name, Shape: []int{2 * n}, Offset: int64(rank * n), BF16: make([]byte, 2*n)}, 1)
	}
	add(Piece{Name: "bias", Shape: []int{2 * 3}, Offset: int64(rank * 3), Data: make([]float32, 3)}, 2)
	for i, size := range []int{4, 2, 4} {
		vectors[i].Seals = seals.Make(memory[i], size)
	}
	return pieces, vectors
}

// saveSealed saves the sealed state of two ranks, and returns the folder.
func saveSealed(t *testing.T, change func(rank int, pieces []Piece, vectors []*Vector)) (path string, changes []Change, err error) {
	t.Helper()
	dir := t.TempDir()
	w, err := NewWriter(Disk{}, dir, 5, 2)
	if err != nil {
		t.Fatal(err)
	}
	w.Changed = func(c Change) { changes = append(changes, c) }
	for rank := range 2 {
		pieces, vectors := sealedState(rank)
		if change != nil {
			change(rank, pieces, vectors)
		}
		if err := w.WriteShard(rank, pieces); err != nil {
			if names := names(t, w.temp); rank == 0 && len(names) > 0 {
				t.Errorf("%q were left", names)
			}
			return "", changes, err
		}
	}
	if err := w.Commit(stateAt(5), testConfig); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, stepName(5)), changes, nil
}

// State that has changed in memory since it was sealed is restored before it is saved. If that is
// impossible, the save fails.
func TestSealedShards(t *testing.T) {
	for name, c := range map[string]struct {
		change func(pieces []Piece, vectors []*Vector)
		want   []Change
		lost   bool
	}{
		"nothing":      {change: func([]Piece, []*Vector) {}},
		"a master bit": {func(p []Piece, _ []*Vector) { p[2].Bytes()[4*1500+1] ^= 4 }, []Change{{"master of the dense group", true}}, false},
		"a moment":     {func(p []Piece, _ []*Vector) { p[1].BF16[0] ^= 255 }, []Change{{"exp_avg of the dense group", true}}, false},
		"two blocks":   {func(p []Piece, _ []*Vector) { p[0].Bytes()[0] ^= 1; p[4].Bytes()[9000] ^= 1 }, []Change{{"master of the dense group", true}}, false},
		"a bias":       {func(p []Piece, _ []*Vector) { p[6].Bytes()[11] ^= 128 }, []Change{{"biases: 3 of them", true}}, false},
		"a seal":       {func(_ []Piece, v []*Vector) { v[0].Seals[2] ^= 1 << 40 }, []Change{{"master of the dense group", true}}, false},
		"two bytes":    {func(p []Piece, _ []*Vector) { p[0].Bytes()[0] ^= 1; p[0].Bytes()[9] ^= 1 }, nil, true},
	} {
		path, changes, err := saveSealed(t, func(rank int, p []Piece, v []*Vector) {
			if rank == 0 {
				c.change(p, v)
			}
		})
		if c.lost {
			checkError(t, err, "step 5, rank 0: master of the dense group differs from its checksums in memory")
			if !errors.Is(err, ErrChanged) {
				t.Errorf("%s: %v is not ErrChanged", name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(changes, c.want) {
			t.Errorf("%s: changes %v, want %v; error %v", name, changes, c.want, err)
			continue
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range 2 {
			pieces, vectors := sealedState(rank)
			for _, want := range pieces {
				got := want
				if want.BF16 != nil {
					got.BF16 = make([]byte, len(want.BF16))
				} else {
					got.Data = make([]float32, len(want.Data))
				}
				if err := r.ReadInto(got); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
					t.Errorf("%s: %s differs, error %v", name, want.Name, err)
				}
			}
			if changed, ok := r.Differing(rank, pieces); changed != nil || !ok {
				t.Errorf("%s: %q differ from what is saved, comparable %v", name, changed, ok)
			}
			vectors[1].Seals[0]++
			if changed, ok := r.Differing(rank, pieces); !slices.Equal(changed, []string{vectors[1].Name}) || !ok {
				t.Errorf("%s: %q differ from what is saved, comparable %v", name, changed, ok)
			}
			if _, ok := r.Differing(rank, pieces[2:]); ok {
				t.Errorf("%s: other pieces are comparable", name)
			}
			if _, ok := r.Differing(1-rank, pieces); ok {
				t.Errorf("%s: the pieces of another rank are comparable", name)
			}
		}
		if !r.Sealed() {
			t.Errorf("%s: it has no seals", name)
		}
		r.Close()
	}
}

// What changes in the buffer of a file before its CRC32C is made is found, in the data and in the
// header.
func TestSealedBuffer(t *testing.T) {
	pieces, _ := sealedState(0)
	text, vectors, err := sealsText(pieces)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	size := 0
	for _, p := range pieces {
		tensors = append(tensors, safetensors.Tensor{Name: p.key(), DType: p.dtype(), Shape: []int{p.Len()}, Data: p.Bytes()})
		size += len(p.Bytes())
	}
	for at := -1; at < directAlignment+size; at += 331 {
		c := newChunker(&bytes.Buffer{}, "shard")
		w := &shardWriter{to: c, pieces: pieces}
		if err := safetensors.EncodeAligned(w, tensors, map[string]string{sealsKey: text}, directAlignment); err != nil {
			t.Fatal(err)
		}
		if at >= 0 {
			c.block[at] ^= 1
		}
		if err := c.flush(); err != nil {
			t.Fatal(err)
		}
		if found := !w.same || len(w.differing(vectors)) > 0; found != (at >= 0) {
			t.Errorf("byte %d changed: found %v", at, found)
		}
	}
}

// Files that are as they were written, but are not what training has sealed, are damaged.
func TestSealsAtOpen(t *testing.T) {
	path, _, err := saveSealed(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	files := readFolder(t, path)
	m, err := parseManifest(files[manifestName])
	if err != nil {
		t.Fatal(err)
	}
	data := files[m.Shards[1].Name]
	data[len(data)-700] ^= 1 // of BF16, which comes last
	m.Shards[1] = describe(m.Shards[1].Name, data)
	if files[manifestName], err = m.encode(); err != nil {
		t.Fatal(err)
	}
	writeFolder(t, path, files)
	_, err = Open(path)
	checkError(t, err, "rank-00001-of-00002.safetensors: exp_avg of the dense group is not what training has saved")
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%v is not damage", err)
	}
}

// The trainer's state, the configuration and the tokenizer are not saved if they have changed.
func TestSealedTexts(t *testing.T) {
	for what, change := range map[string]func(w *Writer){
		"the trainer's state": func(w *Writer) { w.Seals.Meta++ },
		"the configuration":   func(w *Writer) { w.Seals.Config++ },
		"the tokenizer":       func(w *Writer) { w.Seals.Tokenizer++ },
		"":                    func(w *Writer) {},
	} {
		w := writeShards(t, t.TempDir(), 5, 1)
		tokenizer := []byte("{}")
		w.Seals.Meta, w.Seals.Config, w.Seals.Tokenizer = seals.Of([]byte(`{"tokens":640}`)), seals.Of(testConfig), seals.Of(tokenizer)
		change(w)
		err := w.WriteTokenizer(tokenizer)
		if err == nil {
			err = w.Commit(map[string]int{"tokens": 640}, testConfig)
		}
		if _, missing := os.Stat(w.final); (what == "") != (err == nil) || (what == "") != (missing == nil) {
			t.Errorf("%q: error %v, folder %v", what, err, missing)
		}
		if what != "" {
			checkError(t, err, what+" differs from its checksums")
		}
	}
}

// A checkpoint without seals, and one with seals of a part of its pieces, say so.
func TestUnsealed(t *testing.T) {
	some, _, err := saveSealed(t, func(_ int, p []Piece, _ []*Vector) { p[6].Vector = nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{save(t, t.TempDir(), 5, 2), some} {
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sealed() {
			t.Errorf("%s has seals", path)
		}
		if pieces, _ := sealedState(0); path != some {
			if _, ok := r.Differing(0, pieces); ok {
				t.Error("it can be compared with seals")
			}
		}
		r.Close()
	}
}

// FuzzSeals reads any text as the seals of a shard, and gives it all bytes.
func FuzzSeals(f *testing.F) {
	pieces, _ := sealedState(0)
	text, _, err := sealsText(pieces)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, text := range []string{"0 0 a", "0 0,0 a", "0 3,4 a", "0 7 a", "0 -1 a", "0  a", "x 0 a", "0 0", "0 0 a\n0 0 b\n", "\n"} {
		f.Add(text)
	}
	var tensors []safetensors.Tensor
	for _, p := range pieces {
		tensors = append(tensors, safetensors.Tensor{Name: p.key(), DType: p.dtype(), Shape: []int{p.Len()}, Data: p.Bytes()})
	}
	f.Fuzz(func(t *testing.T, text string) {
		var file bytes.Buffer
		if safetensors.Encode(&file, tensors, map[string]string{sealsKey: text}) != nil {
			return
		}
		data := file.Bytes()
		open, err := safetensors.NewFile("shard", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSealing(open)
		if err != nil || s == nil {
			return
		}
		for at := 0; at < len(data); at += 3000 {
			s.see(int64(at), data[at:min(at+3000, len(data))])
		}
		if len(s.partial) > 0 {
			t.Errorf("%d blocks are not complete", len(s.partial))
		}
		_ = fmt.Sprint(s.match("shard"))
	})
}
