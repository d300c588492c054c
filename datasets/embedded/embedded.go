// Package embedded holds text inside the program, for machines without a Go installation: the
// sources and the documentation of spmoe itself, as they were when the archive was packed.
package embedded

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// A new archive is other text: runs on the old one cannot be resumed, and losses do not compare
// with earlier ones. So it is not packed again when the sources change.
//
//go:generate go run ./pack ../.. text.tar.zst
//go:embed text.tar.zst
var archive []byte

// Sum is the SHA-256 of the unpacked archive, in hexadecimal. pack prints it.
const Sum = "a1e3b57d471c140ede90d8eb497c4e8c9f1a11e3dfb131246859376faa60febd"

// License is the license of the text.
const License = "Apache-2.0"

// File is a document of the archive. Its name is slash-separated.
type File struct {
	Name string
	Text []byte
}

// Files unpacks the archive. The files are ordered by name, and none is empty.
func Files() (files []File, err error) {
	unpacked, err := unpack()
	if err != nil {
		return nil, err
	}
	for len(unpacked) >= block && unpacked[0] != 0 {
		f, rest, err := next(unpacked)
		if err != nil {
			return nil, fmt.Errorf("the text in the program: %w", err)
		}
		files, unpacked = append(files, f), rest
	}
	return files, nil
}

// block is the unit of a tar archive: a header, or a part of a file, which is padded.
const block = 512

// next returns the first file of an archive and what follows it. pack writes regular files in the
// USTAR format. Package archive/tar reads more formats and the system's users.
func next(archive []byte) (f File, rest []byte, err error) {
	header, rest := archive[:block], archive[block:]
	field := func(from, to int) string {
		text, _, _ := bytes.Cut(header[from:to], []byte{0})
		return string(text)
	}
	f.Name = field(0, 100)
	if folder := field(345, 500); folder != "" {
		f.Name = folder + "/" + f.Name
	}
	size, err := strconv.ParseUint(field(124, 136), 8, 31)
	padded := (int(size) + block - 1) / block * block
	if err != nil || field(257, 263) != "ustar" || padded > len(rest) {
		return f, nil, fmt.Errorf("%q has no valid header", f.Name)
	}
	f.Text = rest[:size:size]
	return f, rest[padded:], nil
}

// unpack returns the archive without its compression.
func unpack() ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	unpacked, err := z.DecodeAll(archive, nil)
	if err != nil {
		return nil, fmt.Errorf("the text in the program cannot be unpacked: %w", err)
	}
	return unpacked, nil
}
