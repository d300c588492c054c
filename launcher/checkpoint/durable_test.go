package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Whatever the size, and the parts in which it comes, a file holds what was written, and readers of
// small pieces get the bytes of the file. A file that is there stays, one that fails does not.
func TestWriteFile(t *testing.T) {
	rng, dir := rand.New(rand.NewPCG(1, 2)), t.TempDir()
	data := make([]byte, 2*chunkBytes+3*blockBytes)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for i, size := range []int{0, 1, blockBytes, chunkBytes - 1, chunkBytes, chunkBytes + 1, 2*chunkBytes + 5, len(data)} {
		name := fmt.Sprint(i)
		got, err := writeFile(Disk{}, dir, name, func(out io.Writer) error {
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
		for chunk := range got.CRC32C {
			if err := verifyChunk(bytes.NewReader(data[:size]), got, chunk, make([]byte, chunkBytes/3)); err != nil {
				t.Errorf("%d bytes, read in several parts: %v", size, err)
			}
		}
		if read, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(read, data[:size]) {
			t.Errorf("%d bytes: the file has %d, or others (%v)", size, len(read), err)
		}
	}
	_, err := writeSmall(Disk{}, dir, "1", []byte("other"))
	if read, _ := os.ReadFile(filepath.Join(dir, "1")); !errors.Is(err, os.ErrExist) || !bytes.Equal(read, data[:1]) {
		t.Errorf("a file that was there became %q (%v)", read, err)
	}
	_, err = writeFile(Disk{}, dir, "bad", func(io.Writer) error { return io.ErrShortWrite })
	if left, _ := os.ReadFile(filepath.Join(dir, "bad")); !errors.Is(err, io.ErrShortWrite) || left != nil {
		t.Errorf("a failed write left %q (%v)", left, err)
	}
	blocks := &blockReader{file: bytes.NewReader(data), size: 1000}
	for range 2000 {
		p := make([]byte, rng.IntN(1500))
		at := rng.IntN(3000)
		if rng.IntN(4) == 0 {
			at = len(data) - rng.IntN(1200) - 1
		}
		want := data[at:min(at+len(p), len(data))]
		if n, err := blocks.ReadAt(p, int64(at)); n != len(want) || !bytes.Equal(p[:n], want) || (err == nil) != (n == len(p)) {
			t.Fatalf("%d bytes at %d: %d, or others (%v)", len(p), at, n, err)
		}
	}
}
