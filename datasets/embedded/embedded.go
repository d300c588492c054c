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

// A new archive would be other text: runs on the old one could not be resumed, and losses would not
// compare with earlier ones. So it is not packed again when the sources change. The command pack of
// commit ae336b0a, in this folder, has made it.
//
//go:embed text.tar.zst
var archive []byte

// Sum is the SHA-256 of the unpacked archive, in hexadecimal.
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
	rest, err := unpack()
	if err != nil {
		return nil, err
	}
	// In a USTAR archive, a header of one block holds the name from byte 0 on, up to a NUL, and the
	// size from byte 124 on, as 11 octal digits. Blocks of zeros end it. archive/tar would do, but
	// needs cgo, which makes the first build longer.
	const block = 512
	for len(rest) > block && rest[0] != 0 {
		name, _, _ := bytes.Cut(rest[:100], []byte{0})
		size, err := strconv.ParseUint(string(rest[124:135]), 8, 31)
		padded := (int(size) + block - 1) / block * block
		if err != nil || len(rest) < block+padded {
			return nil, fmt.Errorf("the text in the program is damaged at %q (%v)", name, err)
		}
		files = append(files, File{string(name), rest[block:][:size:size]})
		rest = rest[block+padded:]
	}
	return files, nil
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
