package trainer

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/datasets"
)

// The scale of a run is the size of its validation text in a gzip file, whatever the tokens are.
func TestGzipBits(t *testing.T) {
	var text strings.Builder
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		fmt.Fprintln(&text, "line", rng.IntN(1e9), rng.IntN(1e9))
	}
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	data, err := datasets.Load([]string{path}, datasets.Bytes{}, datasets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := &Job{heldOut: data.HeldOut, tokenizer: datasets.Bytes{}}
	j.cfg.Seq = 16
	got, err := j.gzipBits()
	if err != nil {
		t.Fatal(err)
	}
	w, err := datasets.NewWindows(data.HeldOut, datasets.WindowsConfig{Seq: 1, Count: math.MaxInt32, Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	var whole []byte
	row := make([]int32, 2)
	for range w.All(row) {
		whole = append(whole, byte(row[1]))
	}
	var packed bytes.Buffer
	to, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	to.Write(whole)
	to.Close()
	if want := 8 * float64(packed.Len()) / float64(len(whole)); len(whole) < 2000 || math.Abs(got-want) > 0.02*want {
		t.Errorf("%.4f bits/byte, want %.4f of %d bytes", got, want, len(whole))
	}
}
