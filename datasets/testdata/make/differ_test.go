// Package main holds Apache Arrow's library as the oracle of the readers of datasets: every test
// file, and random tables in each layout that it can write. It is a separate module, so that spmoe
// does not need the library. The command make of commit ae336b0a, in this folder, has written the
// test files with that library and parquet-go; others.mjs has written those of others.
//
//	cd datasets/testdata/make && go test .
package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	apache "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"spmoe/datasets/arrowipc"
	"spmoe/datasets/parquet"
)

// null stands for a row that is null.
const null = "\x00null"

// ours returns the rows of a column as the readers of datasets have them.
func ours(content []byte, field string) (rows []string, err error) {
	each := func(text []byte) error {
		if text == nil {
			rows = append(rows, null)
		} else {
			rows = append(rows, string(text))
		}
		return nil
	}
	in := bytes.NewReader(content)
	if bytes.HasPrefix(content, []byte(parquet.Magic)) {
		column, err := parquet.Open(in, in.Size(), field)
		if err != nil {
			return nil, err
		}
		return rows, column.Rows(each)
	}
	var column *arrowipc.Text
	if bytes.HasPrefix(content, []byte(arrowipc.Magic)) {
		column, err = arrowipc.NewTextFile(in, in.Size(), field)
	} else {
		column, err = arrowipc.NewText(in, field)
	}
	if err != nil {
		return nil, err
	}
	return rows, column.Rows(each)
}

// theirs returns the rows of a column that Apache Arrow's library reads.
func theirs(content []byte, field string) (rows []string, err error) {
	in := bytes.NewReader(content)
	add := func(r arrow.Record) error {
		at := r.Schema().FieldIndices(field)
		if len(at) != 1 {
			return fmt.Errorf("%d columns %q", len(at), field)
		}
		for i := range int(r.NumRows()) {
			rows = append(rows, text(r.Column(at[0]), i))
		}
		return nil
	}
	switch {
	case bytes.HasPrefix(content, []byte(parquet.Magic)):
		f, err := file.NewParquetReader(in)
		if err != nil {
			return nil, err
		}
		from, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
		if err != nil {
			return nil, err
		}
		table, err := from.ReadTable(context.Background())
		if err != nil {
			return nil, err
		}
		all := array.NewTableReader(table, 1<<20)
		for all.Next() {
			if err := add(all.Record()); err != nil {
				return nil, err
			}
		}
		return rows, all.Err()
	case bytes.HasPrefix(content, []byte(arrowipc.Magic)):
		f, err := ipc.NewFileReader(in)
		if err != nil {
			return nil, err
		}
		for i := range f.NumRecords() {
			r, err := f.Record(i)
			if err == nil {
				err = add(r)
			}
			if err != nil {
				return nil, err
			}
		}
		return rows, nil
	}
	all, err := ipc.NewReader(in)
	if err != nil {
		return nil, err
	}
	for all.Next() {
		if err := add(all.Record()); err != nil {
			return nil, err
		}
	}
	return rows, all.Err()
}

// text is a string of an array.
func text(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return null
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return text(a.Dictionary(), a.GetValueIndex(i))
	case interface{ Value(int) string }:
		return a.Value(i)
	case interface{ Value(int) []byte }:
		return string(a.Value(i))
	}
	panic(fmt.Sprintf("%T", a))
}

// compare returns the first difference; empty: none.
func compare(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("row %d of %d is %.100q, want %.100q", i+1, len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d rows, want %d", len(got), len(want))
	}
	return ""
}

// TestFiles: all test files that hold text have the same rows as Apache Arrow's library finds.
func TestFiles(t *testing.T) {
	var paths []string
	for _, pattern := range []string{"../*.parquet", "../*.arrow", "../others/*.parquet", "../others/*.arrow*"} {
		all, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, all...)
	}
	compared := 0
	for _, path := range paths {
		base := filepath.Base(path)
		if strings.HasPrefix(base, "numbers-") || base == "tokens.arrow" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := theirs(content, "text")
		if err != nil {
			t.Logf("%s: Apache Arrow's library says %v", path, err)
			continue
		}
		got, err := ours(content, "text")
		if difference := compare(got, want); err != nil || difference != "" {
			t.Errorf("%s: %v, %s", path, err, difference)
		}
		compared++
	}
	if compared < 40 {
		t.Errorf("%d files compared, of %d", compared, len(paths))
	}
}

// TestRandomTables: tables of random strings in random types, batches, codecs, encodings and page
// sizes.
func TestRandomTables(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 59))
		kind, records := table(rng)
		for name, content := range written(t, rng, kind, records) {
			want, err := theirs(content, "text")
			if err != nil {
				t.Fatalf("seed %d, %v as %s: Apache Arrow's library cannot read what it writes: %v", seed, kind, name, err)
			}
			got, err := ours(content, "text")
			if difference := compare(got, want); err != nil || difference != "" {
				t.Errorf("seed %d, %v as %s: %v, %s", seed, kind, name, err, difference)
			}
		}
	}
}

// kinds are the types of columns with text, and whether Parquet files have them.
var kinds = []struct {
	arrow.DataType
	parquet bool
}{
	{arrow.BinaryTypes.String, true}, {arrow.BinaryTypes.LargeString, true},
	{arrow.BinaryTypes.Binary, true}, {arrow.BinaryTypes.LargeBinary, true},
	{arrow.BinaryTypes.StringView, false}, {arrow.BinaryTypes.BinaryView, false},
}

// table returns random batches with a column of text.
func table(rng *rand.Rand) (kind arrow.DataType, records []arrow.Record) {
	kind = kinds[rng.IntN(len(kinds))].DataType
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int32}, {Name: "text", Type: kind, Nullable: true}}, nil)
	words := make([]string, 1+rng.IntN(60))
	for i := range words {
		words[i] = strings.Repeat(string(rune('a'+rng.IntN(2000))), rng.IntN(1+rng.IntN(40)))
	}
	nulls := rng.IntN(4)
	for range 1 + rng.IntN(4) {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for row := range rng.IntN(1 + rng.IntN(200)) {
			b.Field(0).(*array.Int32Builder).Append(int32(row))
			appendRandom(rng, b.Field(1), words, nulls)
		}
		records = append(records, b.NewRecord())
	}
	return kind, records
}

// appendRandom appends a string or null.
func appendRandom(rng *rand.Rand, to array.Builder, words []string, nulls int) {
	if rng.IntN(10) < nulls {
		to.AppendNull()
		return
	}
	word := words[rng.IntN(len(words))]
	if b, ok := to.(interface{ Append([]byte) }); ok { // of bytes
		b.Append([]byte(word))
	} else if err := to.AppendValueFromString(word); err != nil {
		panic(err)
	}
}

// written returns batches as a stream, as an Arrow file and, if it has their type, as Parquet.
func written(t *testing.T, rng *rand.Rand, kind arrow.DataType, records []arrow.Record) map[string][]byte {
	t.Helper()
	options := [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}}[rng.IntN(3)]
	all := map[string][]byte{"stream": stream(t, records, options), "file": arrowFile(t, records, options)}
	if !slices.ContainsFunc(kinds, func(k struct {
		arrow.DataType
		parquet bool
	}) bool {
		return k.parquet && k.DataType == kind
	}) {
		return all
	}
	codecs := []compress.Compression{
		compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd,
	}
	encoding := []apache.Encoding{apache.Encodings.Plain, apache.Encodings.DeltaByteArray, apache.Encodings.DeltaLengthByteArray}[rng.IntN(3)]
	properties := []apache.WriterProperty{
		apache.WithCompression(codecs[rng.IntN(len(codecs))]),
		apache.WithDataPageSize(int64(1 + rng.IntN(2000))), apache.WithBatchSize(int64(1 + rng.IntN(50))),
		apache.WithDictionaryDefault(rng.IntN(2) == 0), apache.WithDictionaryPageSizeLimit(int64(1 + rng.IntN(1000))),
		apache.WithDataPageVersion([]apache.DataPageVersion{apache.DataPageV1, apache.DataPageV2}[rng.IntN(2)]),
		apache.WithEncodingFor("text", encoding),
	}
	var b bytes.Buffer
	w, err := pqarrow.NewFileWriter(records[0].Schema(), &b, apache.NewWriterProperties(properties...), pqarrow.DefaultWriterProps())
	for _, r := range records {
		if err == nil {
			err = w.Write(r)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Logf("Apache Arrow's library cannot write %v as Parquet: %v", kind, err)
		return all
	}
	all["Parquet"] = b.Bytes()
	return all
}

func stream(t *testing.T, all []arrow.Record, options []ipc.Option) []byte {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, append(options, ipc.WithSchema(all[0].Schema()))...)
	for _, r := range all {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func arrowFile(t *testing.T, all []arrow.Record, options []ipc.Option) []byte {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := ipc.NewFileWriter(out, append(options, ipc.WithSchema(all[0].Schema()))...)
	for _, r := range all {
		if err == nil {
			err = w.Write(r)
		}
	}
	if err == nil {
		err = w.Close()
	}
	content, wrong := os.ReadFile(out.Name())
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	return content
}
