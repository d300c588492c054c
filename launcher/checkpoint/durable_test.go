package checkpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Whatever the size, and the parts in which it comes, a file holds what was written, past the page
// cache or not.
func TestWriteFile(t *testing.T) {
	folders := []string{t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "checkpoint"); err == nil { // in memory, where nothing goes past a cache
		t.Cleanup(func() { os.RemoveAll(dir) })
		folders = append(folders, dir)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 2*chunkBytes+3*directAlignment)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for _, dir := range folders {
		for i, size := range []int{0, 1, directAlignment - 1, directAlignment, directAlignment + 1, chunkBytes - 1, chunkBytes,
			chunkBytes + directAlignment, 2*chunkBytes + 5, len(data)} {
			name := fmt.Sprint(i)
			got, err := writeFile(Disk{}, dir, name, func(out *chunker) error {
				for rest := data[:size]; len(rest) > 0; {
					n := min(len(rest), 1+rng.IntN(1<<21))
					if _, err := out.Write(rest[:n]); err != nil {
						return err
					}
					rest = rest[n:]
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := describe(name, data[:size]); !sameFile(got, want) {
				t.Errorf("%d bytes are described as %+v, want %+v", size, got, want)
			}
			if read, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(read, data[:size]) {
				t.Errorf("%d bytes: the file in %s has %d, or others (%v)", size, dir, len(read), err)
			}
		}
	}
}

// A copy in Room is written as it lies, in long calls; the shard is the one that any other memory
// gives, whatever the lengths of the pieces and their types.
func TestRoom(t *testing.T) {
	n := blockBytes / 2
	var live []Piece
	for _, name := range []string{"b", "a", "c", "none"} {
		p := Piece{Name: name, Shape: []int{n}, Data: make([]float32, n)}
		for i := range p.Data {
			p.Data[i] = float32(i) + float32(name[0])
		}
		live = append(live, p)
		n += 12345
	}
	live[3].Data = nil
	live = append(live,
		Piece{Name: "momentum/a", Shape: []int{7}, BF16: bf16Tensor(7)},
		Piece{Name: "momentum/b", Shape: []int{2}, BF16: bf16Tensor(2)},
		Piece{Name: "momentum/none", Shape: []int{3}, BF16: []byte{}})
	room := Room(live)
	for i, p := range live {
		if copy(room[i].Bytes(), p.Bytes()); room[i].Len() != p.Len() || room[i].Name != p.Name {
			t.Fatalf("room for %q is %d elements of %q", p.Name, room[i].Len(), room[i].Name)
		}
	}
	var shards [2][]byte
	for i, pieces := range [][]Piece{live, room} {
		dir := t.TempDir()
		r, _ := record(t, dir)
		w, err := NewWriter(r, dir, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteShard(0, pieces, nil); err != nil {
			t.Fatal(err)
		}
		writes := 0
		for _, o := range r.ops {
			if o.kind == "write" {
				writes++
			}
		}
		if i == 1 && writes != 4 { // header, whole blocks, the rest, the receipt
			t.Errorf("the copy was written in %d calls, want 4", writes)
		}
		if shards[i], err = os.ReadFile(filepath.Join(w.temp, shardName(0, 1))); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(shards[0], shards[1]) {
		t.Error("the shards differ")
	}
}
