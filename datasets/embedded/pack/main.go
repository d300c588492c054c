// Command pack writes the archive of package embedded: pack ROOT OUT. The same files give the same
// bytes. It prints the SHA-256 of the unpacked archive, which belongs into embedded.Sum.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: pack ROOT OUT")
	}
	files, err := find(os.DirFS(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	unpacked, err := bundle(files)
	if err != nil {
		log.Fatal(err)
	}
	packed, err := compress(unpacked)
	if err == nil {
		err = os.WriteFile(os.Args[2], packed, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d files, %d bytes, %d packed\n%x\n", len(files), len(unpacked), len(packed), sha256.Sum256(unpacked))
}

type file struct {
	name string
	text []byte
}

// leftOut is the archive's own package, whose text depends on the archive, and measurements.
var leftOut = []string{"datasets/embedded", "bench/results"}

// find returns the handwritten Go and Markdown files of a repository, ordered by name.
func find(repository fs.FS) (files []file, err error) {
	err = fs.WalkDir(repository, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		switch {
		case entry.IsDir():
			if name != "." && base[0] == '.' || base == "testdata" || base == "runs" || slices.Contains(leftOut, name) {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || path.Ext(name) != ".go" && path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(repository, name)
		if err == nil && len(text) > 0 && !generated(text) {
			files = append(files, file{"spmoe/" + name, text})
		}
		return err
	})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, err
}

// generated reports whether a Go file says before its package clause that it is generated.
func generated(text []byte) bool {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("package ")) {
			return false
		}
		if bytes.Contains(line, []byte("Code generated")) {
			return true
		}
	}
	return false
}

// bundle returns a tar archive of files without owners and times.
func bundle(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o644, Format: tar.FormatUSTAR})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// compress returns one zstd frame with a checksum.
func compress(unpacked []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(unpacked, nil), w.Close()
}
