package datasets

// The kind of a file of a corpus, by its name and its first bytes: text, rows of JSON or
// Parquet, each possibly compressed, or tokens.

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"spmoe/datasets/arrowipc"
	"spmoe/datasets/parquet"
)

// kind is the kind of a file's uncompressed content.
type kind uint8

const (
	plainText kind = iota
	jsonLines
	jsonValues      // an array, or objects over several lines: they are recognized, but not read
	separatedValues // CSV and TSV: they are recognized, but not read
	parquetFile
	arrowData // a token file; others are recognized, but not read
)

// rows reports whether a file has one document per row.
func (k kind) rows() bool { return k != plainText }

// packing is the compression of a file.
type packing uint8

const (
	unpacked packing = iota
	gzipped
	zstandard
)

var packings = map[string]packing{".gz": gzipped, ".zst": zstandard, ".zstd": zstandard}

var kinds = map[string]kind{
	".jsonl": jsonLines, ".jsonlines": jsonLines, ".ndjson": jsonLines, ".json": jsonLines, ".csv": separatedValues, ".tsv": separatedValues,
	".parquet": parquetFile, ".pq": parquetFile, ".arrow": arrowData, ".arrows": arrowData, ".feather": arrowData, ".ipc": arrowData,
}

// otherPackings are those of files that are not read.
var otherPackings = []string{".xz", ".bz2", ".lz4", ".br", ".lzma", ".zip", ".7z", ".tar", ".tgz"}

// readable are texts that are also read compressed in a folder. Other compressed files there may be
// anything.
var readable = map[string]bool{".txt": true, ".text": true, ".md": true}

// identify determines the kind of f from its name and, if that is not enough, from its first bytes.
// A .json file is read by lines if its first line is a whole object. In a folder, JSON and
// CSV without the field are text.
func (f *file) identify(opts Options) error {
	name := strings.ToLower(path.Base(f.name))
	if f.packing = packings[path.Ext(name)]; f.packing != unpacked {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	ext := path.Ext(name)
	if slices.Contains(otherPackings, ext) && (f.given || kinds[path.Ext(strings.TrimSuffix(name, ext))] != plainText) {
		return fmt.Errorf("data file %s: %s is not read: unpack it, or pack it with gzip (.gz) or zstd (.zst) instead", f.path, ext)
	}
	known := false
	f.kind, known = kinds[ext]
	sniffed := ext == ".json" || f.kind == separatedValues && !f.given
	switch {
	case known && !sniffed:
		return nil
	case !known && !f.given:
		if !readable[ext] {
			f.packing = unpacked
		}
		return nil
	}
	most := sniffBytes
	if known {
		most = sniffLine
	}
	start, err := f.start(most)
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", f.path, err)
	case ext == ".json":
		f.kind = f.jsonKind(start, opts)
	case known:
		if names, _, _ := bytes.Cut(start, []byte("\n")); !bytes.Contains(names, []byte(cmp.Or(opts.Field, DefaultField))) {
			f.kind = plainText
		}
	case bytes.HasPrefix(start, []byte(parquet.Magic)):
		f.kind = parquetFile
	case bytes.HasPrefix(start, []byte(arrowipc.Magic)), len(start) > 8 && bytes.HasPrefix(start, []byte("\xff\xff\xff\xff")) && start[7] == 0:
		f.kind = arrowData // a stream begins with the length of a schema, which is small
	}
	return nil
}

// sniffLine is the maximum length of the first line of a .json file with rows.
const sniffLine = 1 << 20

// jsonKind returns the kind of a .json file that begins like that.
func (f *file) jsonKind(start []byte, opts Options) kind {
	field := cmp.Or(opts.Field, DefaultField)
	line, _, whole := bytes.Cut(start, []byte("\n"))
	if line = bytes.TrimSpace(line); (whole || len(start) < sniffLine) && len(line) > 0 && line[0] == '{' && json.Valid(line) {
		if _, _, err := textOf(line, field); f.given || err == nil {
			return jsonLines
		}
		return plainText
	}
	begin := bytes.TrimSpace(bytes.TrimPrefix(start, byteOrderMark))
	if len(begin) == 0 || begin[0] != '[' && begin[0] != '{' {
		return plainText
	}
	if f.given || bytes.Contains(begin, []byte(strconv.Quote(field))) {
		return jsonValues
	}
	return plainText
}

// start returns the first bytes of f, uncompressed, at most most. It allocates memory as they
// arrive.
func (f *file) start(most int) ([]byte, error) {
	in, err := openFile(f.path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, done, err := f.packing.reader(in)
	if err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer done()
	start, err := io.ReadAll(io.LimitReader(r, int64(most)))
	if err == io.ErrUnexpectedEOF { // a truncated file is noticed when all of it is read
		err = nil
	}
	if err != nil && f.packing != unpacked {
		err = packed(err)
	}
	return start, err
}

// openFile opens a regular file. It must not block on a pipe that has replaced the file.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	} else if !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s: not a regular file (its mode is %v)", path, info.Mode()), f.Close())
	}
	return f, nil
}

const (
	// bytes of memory of a zstd frame, the maximum that zstd itself allows
	mostWindow = 128 << 20
	// bytes that a file may yield regardless of its size, and
	freeBytes = 256 << 20
	// bytes that it may yield per byte of its own beyond that: text is compressed 2 to 20 times, a
	// bomb thousands of times
	mostRatio = 250
)

// reader decompresses r. done releases its resources.
func (p packing) reader(r io.Reader) (unpacked io.Reader, done func(), err error) {
	switch p {
	case gzipped:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, nil, packed(err)
		}
		return z, func() {}, nil
	case zstandard:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, nil, packed(err)
		}
		return z, z.Close, nil
	}
	return r, func() {}, nil
}

// packed converts an error of decompression.
func packed(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return fmt.Errorf("it cannot be unpacked: %w", err)
}

// guard passes on the content of a file of size bytes, and fails if there is more than text can
// yield.
type guard struct {
	r    io.Reader
	left int64
}

func newGuard(r io.Reader, size int64) *guard {
	return &guard{r, freeBytes + mostRatio*min(size, 1<<50)}
}

func (g *guard) Read(b []byte) (int, error) {
	n, err := g.r.Read(b)
	return n, cmp.Or(g.take(n), err)
}

// take counts n bytes.
func (g *guard) take(n int) error {
	if g.left -= int64(n); g.left < 0 {
		return fmt.Errorf("it is a decompression bomb, or no text: it unpacks to more than %d times its size: unpack it yourself if it is wanted", mostRatio)
	}
	return nil
}
