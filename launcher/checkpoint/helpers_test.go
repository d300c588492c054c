package checkpoint

import (
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// trainerState stands for the state that the trainer saves next to the tensors.
type trainerState struct {
	Step int64
	LR   float64
	Data struct{ Epoch, Pos int64 }
}

var testConfig = []byte("[model]\nflavor = \"tiny\"\n")

// testState is a run's state at a step: whole tensors, among them a scalar, an empty one, an odd
// name and a NaN.
func testState(step int64) []Piece {
	pieces := []Piece{
		{Name: "master/model.layers.0.w", Shape: []int{5, 7}},
		{Name: "exp_avg/model.layers.0.w", Shape: []int{5, 7}},
		{Name: "router_bias/0", Shape: []int{3}},
		{Name: "at@7", Shape: []int{2, 2, 2}},
		{Name: "scalar"},
		{Name: "empty", Shape: []int{0, 4}},
	}
	for i := range pieces {
		p := &pieces[i]
		total, _ := elements(p.Shape)
		p.Data = make([]float32, total)
		for j := range p.Data {
			p.Data[j] = float32(step) + float32(100*i+j)/1024
		}
	}
	pieces[0].Data[8] = math.Float32frombits(0x7fc0beef)
	pieces[0].Data[9] = float32(math.Copysign(0, -1))
	return pieces
}

// share returns rank's part of each tensor: near-equal ranges, some without elements.
func share(whole []Piece, rank, ranks int) []Piece {
	parts := slices.Clone(whole)
	for i := range parts {
		p := &parts[i]
		begin, end := len(p.Data)*rank/ranks, len(p.Data)*(rank+1)/ranks
		p.Offset, p.Data = int64(begin), p.Data[begin:end]
	}
	return parts
}

// writeShards starts a checkpoint and lets all ranks write.
func writeShards(t *testing.T, fs Files, dir string, step int64, ranks int) *Writer {
	t.Helper()
	w, err := NewWriter(fs, dir, step, ranks)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		if err := w.WriteShard(rank, share(testState(step), rank, ranks), nil); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// saveOn writes a complete checkpoint of testState and returns its folder.
func saveOn(t *testing.T, fs Files, dir string, step int64, ranks int) string {
	t.Helper()
	if err := writeShards(t, fs, dir, step, ranks).Commit(stateAt(step), testConfig); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, stepName(step))
}

// save is saveOn for a real disk.
func save(t *testing.T, dir string, step int64, ranks int) string {
	t.Helper()
	return saveOn(t, Disk{}, dir, step, ranks)
}

// commitShards writes a checkpoint of these pieces by rank and opens it.
func commitShards(t *testing.T, ranks ...[]Piece) *Reader {
	t.Helper()
	w, err := NewWriter(Disk{}, t.TempDir(), 1, len(ranks))
	if err != nil {
		t.Fatal(err)
	}
	for rank, pieces := range ranks {
		if err := w.WriteShard(rank, pieces, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(nil, nil); err != nil {
		t.Fatal(err)
	}
	r, err := Open(w.final)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func stateAt(step int64) trainerState {
	s := trainerState{Step: step, LR: 0.1}
	s.Data.Pos = 1<<53 + step
	return s
}

// checkLoads opens path and demands the whole state of that step.
func checkLoads(t *testing.T, path string, step int64) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Step() != step {
		t.Fatalf("step %d, want %d", r.Step(), step)
	}
	for _, want := range testState(step) {
		checkReads(t, r, want)
	}
}

// checkReads demands that the checkpoint holds exactly the bits of want.
func checkReads(t *testing.T, r *Reader, want Piece) {
	t.Helper()
	got := want
	got.Data = make([]float32, len(want.Data))
	if err := r.ReadInto(got); err != nil {
		t.Error(err)
		return
	}
	for i := range want.Data {
		if g, w := math.Float32bits(got.Data[i]), math.Float32bits(want.Data[i]); g != w {
			t.Errorf("%s element %d has bits %08x, want %08x", want.Name, want.Offset+int64(i), g, w)
			return
		}
	}
}

func checkError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one that says %q", err, text)
		}
	}
}

// describe returns the manifest's entry of a file with these bytes.
func describe(name string, data []byte) file {
	f := file{Name: name, Size: int64(len(data)), CRC32C: []uint32{}}
	for chunk := range slices.Chunk(data, chunkBytes) {
		f.CRC32C = append(f.CRC32C, crc32.Checksum(chunk, castagnoli))
	}
	return f
}

// openShard opens a shard of these tensors.
func openShard(t *testing.T, tensors ...safetensors.Tensor) *safetensors.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shard")
	if err := safetensors.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// readFolder returns the contents of a folder's files by name.
func readFolder(t *testing.T, path string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(path, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// writeFolder makes a folder with these files.
func writeFolder(t *testing.T, path string, files map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(path, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// names lists a folder, sorted.
func names(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
