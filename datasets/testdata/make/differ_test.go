// Package main holds Apache Arrow's library as the oracle of the readers and writers of datasets:
// every Parquet file among the test files, random tables in each layout that the library can write,
// and token files that it reads. It is a separate module, so that spmoe does not need the library.
// The command make of commit ae336b0a, in this folder, has written the test files with that library
// and parquet-go; others.mjs has written those of others.
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

// ours returns the texts of a file as the reader of datasets has them.
func ours(content []byte) (rows []string, err error) {
	column, err := parquet.Open(bytes.NewReader(content), int64(len(content)), "text")
	if err != nil {
		return nil, err
	}
	return rows, column.Rows(func(text []byte) error {
		if text == nil {
			rows = append(rows, null)
		} else {
			rows = append(rows, string(text))
		}
		return nil
	})
}

// theirs returns the texts that Apache Arrow's library reads.
func theirs(content []byte) (rows []string, err error) {
	f, err := file.NewParquetReader(bytes.NewReader(content))
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
		r := all.Record()
		column := r.Column(r.Schema().FieldIndices("text")[0])
		for i := range int(r.NumRows()) {
			rows = append(rows, text(column, i))
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

// TestFiles: all test files that hold text have the same rows as Apache Arrow's library finds.
func TestFiles(t *testing.T) {
	paths, err := filepath.Glob("../*.parquet")
	others, wrong := filepath.Glob("../others/*.parquet")
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	compared := 0
	for _, path := range append(paths, others...) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := theirs(content)
		if err != nil {
			t.Logf("%s: Apache Arrow's library says %v", path, err)
			continue
		}
		if got, err := ours(content); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %q, want %q", path, err, got, want)
		}
		compared++
	}
	if compared < 20 {
		t.Errorf("%d files compared", compared)
	}
}

// TestRandomTables: tables of random strings in random types, batches, codecs, encodings and page
// sizes.
func TestRandomTables(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 59))
		kind, records := table(rng)
		content := written(t, rng, kind, records)
		want, err := theirs(content)
		if err != nil {
			t.Fatalf("seed %d, %v: Apache Arrow's library cannot read what it writes: %v", seed, kind, err)
		}
		if got, err := ours(content); err != nil || !slices.Equal(got, want) {
			t.Errorf("seed %d, %v: %v, %q, want %q", seed, kind, err, got, want)
		}
	}
}

// kinds are the types of columns with text.
var kinds = []arrow.DataType{
	arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary,
	&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
}

// table returns random batches with a column of text.
func table(rng *rand.Rand) (kind arrow.DataType, records []arrow.Record) {
	kind = kinds[rng.IntN(len(kinds))]
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
			word := words[rng.IntN(len(words))]
			if to, ok := b.Field(1).(interface{ Append([]byte) }); rng.IntN(10) < nulls {
				b.Field(1).AppendNull()
			} else if ok { // of bytes
				to.Append([]byte(word))
			} else if err := b.Field(1).AppendValueFromString(word); err != nil {
				panic(err)
			}
		}
		records = append(records, b.NewRecord())
	}
	return kind, records
}

// written returns batches as a Parquet file.
func written(t *testing.T, rng *rand.Rand, kind arrow.DataType, records []arrow.Record) []byte {
	t.Helper()
	codecs := []compress.Compression{
		compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd,
	}
	encoding := []apache.Encoding{apache.Encodings.Plain, apache.Encodings.DeltaLengthByteArray}[rng.IntN(2)]
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
		t.Fatalf("Apache Arrow's library cannot write %v: %v", kind, err)
	}
	return b.Bytes()
}

// TestWriters: Apache Arrow's library reads token files and streams of numbers.
func TestWriters(t *testing.T) {
	var tokens, numbers bytes.Buffer
	parts := []arrowipc.Part{
		{Offsets: []int64{0, 3, 3, 5}, Values: bytes.NewReader([]byte{1, 0, 2, 0, 0xff, 0xff, 4, 0, 5, 0})}, {Offsets: []int64{0}, Values: &bytes.Buffer{}},
	}
	if err := arrowipc.WriteTokens(&tokens, "tokens", 2, []string{"key", "value"}, parts); err != nil {
		t.Fatal(err)
	}
	f, err := ipc.NewFileReader(bytes.NewReader(tokens.Bytes()))
	if err != nil || f.NumRecords() != 2 {
		t.Fatal(err)
	}
	first, err := f.Record(0)
	if want := "[[1 2 65535] [] [4 5]]"; err != nil || fmt.Sprint(first.Column(0)) != want || f.Schema().Metadata().Values()[0] != "value" {
		t.Errorf("%v, %v, want %s", first, err, want)
	}
	w, err := arrowipc.NewNumberWriter(&numbers, []arrowipc.NumberColumn{{Name: "pair", Type: arrowipc.Uint16, List: 2}, {Name: "id", Type: arrowipc.Int32}}, nil)
	if err == nil {
		err = w.Write(2, [][]byte{{1, 0, 2, 0, 3, 0, 4, 0}, {5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}})
	}
	if err == nil {
		err = w.Close()
	}
	s, wrong := ipc.NewReader(&numbers)
	if err != nil || wrong != nil || !s.Next() {
		t.Fatal(err, wrong)
	}
	if got := fmt.Sprint(s.Record().Column(0), s.Record().Column(1)); got != "[[1 2] [3 4]] [5 -1]" {
		t.Errorf("the numbers are %s", got)
	}
}
