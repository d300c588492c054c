package checkpoint

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "first")
	path := save(t, dir, 300, 2)
	want := []string{"config.toml", "manifest.json", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"}
	if got := names(t, path); !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"step-00000300"}) {
		t.Errorf("the run holds %q", got)
	}
	checkLoads(t, path, 300)
	checkLoads(t, dir, 300)

	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var meta trainerState
	if err := r.Meta(&meta); err != nil || meta != stateAt(300) {
		t.Errorf("trainer state %+v (%v), want %+v", meta, err, stateAt(300))
	}
	if !bytes.Equal(r.ConfigTOML(), testConfig) || r.Ranks() != 2 || r.Path() != path {
		t.Errorf("config %q, %d ranks, path %q", r.ConfigTOML(), r.Ranks(), r.Path())
	}
	checkError(t, r.Meta(new(int)), "trainer state")
	if shape := r.Tensors()["master/model.layers.0.w"]; len(r.Tensors()) != 6 || !slices.Equal(shape, []int{5, 7}) {
		t.Errorf("tensors %v", r.Tensors())
	}
}

// Shards are plain safetensors files: the package of that format finds the values.
func TestShardIsPlainSafetensors(t *testing.T) {
	path := save(t, t.TempDir(), 1, 2)
	f, err := safetensors.Open(filepath.Join(path, "rank-00001-of-00002.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := f.Float32s("router_bias/0@1")
	if want := testState(1)[2].Data[1:]; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	whole := readFolder(t, path)["rank-00001-of-00002.safetensors"]
	if !bytes.Contains(whole, []byte(`"__metadata__":{"rank":"1","ranks":"2","step":"1"}`)) {
		t.Errorf("no metadata in %q", whole)
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		piece Piece
		want  string
	}{
		{"no name", Piece{Shape: []int{1}}, "must be UTF-8 and not empty"},
		{"negative dimension", Piece{Name: "w", Shape: []int{-1}}, "negative"},
		{"offset beyond", Piece{Name: "w", Shape: []int{4}, Offset: 5}, "leaves shape [4]"},
		{"too long", Piece{Name: "w", Shape: []int{4}, Offset: 2, Data: make([]float32, 3)}, "3 elements from 2 on leaves shape [4], which has 4"},
		{"other shape", Piece{Name: "known", Shape: []int{2, 1}}, "shape [2] in one piece and [2 1] in another"},
		{"same offset", Piece{Name: "known", Shape: []int{2}, Data: make([]float32, 2)}, "unique"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := NewWriter(Disk{}, t.TempDir(), 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			err = w.WriteShard(0, []Piece{{Name: "known", Shape: []int{2}, Data: make([]float32, 1)}, c.piece}, nil)
			checkError(t, err, c.want, "rank 0")
			if left := names(t, w.temp); len(left) != 0 {
				t.Errorf("the failed shard left %q", left)
			}
		})
	}
	_, err := Join(Disk{}, t.TempDir(), 5, 2)
	checkError(t, err, "no rank has started it")
}

func TestCommitRefuses(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(Disk{}, dir, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteShard(0, []Piece{{Name: "w", Shape: []int{2}}}, nil); err != nil {
		t.Fatal(err)
	}
	checkError(t, w.Commit(nil, nil), "step 1", "rank 1 of 2 has not written")
	checkError(t, w.Commit(func() {}, nil), "trainer state")

	if w, err = NewWriter(Disk{}, dir, 1, 2); err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		if err := w.WriteShard(rank, []Piece{{Name: "w", Shape: []int{2 + rank}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	checkError(t, w.Commit(nil, nil), `"w" has shape [2] in one piece and [3] in another`)
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("Abort left %q", left)
	}
}
