package main

// Apache Arrow's library as the oracle of the readers of datasets: every test file, and random
// tables in each layout that it can write.
//
//	cd datasets/testdata/make && go test .

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

// text is a string of an array, or the strings of a list joined with line ends. A list without
// strings is no text.
func text(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return null
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return text(a.Dictionary(), a.GetValueIndex(i))
	case array.ListLike:
		var parts []string
		for from, to := a.ValueOffsets(i); from < to; from++ {
			if part := text(a.ListValues(), int(from)); part != null {
				parts = append(parts, part)
			}
		}
		if parts == nil {
			return null
		}
		return strings.Join(parts, "\n")
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
		for _, field := range []string{"text", "tags"} {
			want, err := theirs(content, field)
			if err != nil {
				t.Logf("%s of %s: Apache Arrow's library says %v", field, path, err)
				continue
			}
			got, err := ours(content, field)
			if difference := compare(got, want); err != nil || difference != "" {
				t.Errorf("%s of %s: %v, %s", field, path, err, difference)
			}
			compared++
		}
	}
	if compared < 80 {
		t.Errorf("%d columns compared, of %d files", compared, len(paths))
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
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, true},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: arrow.BinaryTypes.String}, false},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int64, ValueType: arrow.BinaryTypes.Binary}, false},
	{arrow.ListOf(arrow.BinaryTypes.String), true}, {arrow.LargeListOf(arrow.BinaryTypes.String), false},
	{arrow.FixedSizeListOf(2, arrow.BinaryTypes.String), false},
	{arrow.ListOf(arrow.BinaryTypes.StringView), false},
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

// appendRandom appends a string, a list of them, or null.
func appendRandom(rng *rand.Rand, to array.Builder, words []string, nulls int) {
	if rng.IntN(10) < nulls {
		to.AppendNull()
		return
	}
	list, n := array.Builder(nil), rng.IntN(4)
	switch b := to.(type) {
	case *array.ListBuilder:
		b.Append(true)
		list = b.ValueBuilder()
	case *array.LargeListBuilder:
		b.Append(true)
		list = b.ValueBuilder()
	case *array.FixedSizeListBuilder:
		b.Append(true)
		list, n = b.ValueBuilder(), 2
	case interface{ Append([]byte) }: // of bytes
		b.Append([]byte(words[rng.IntN(len(words))]))
		return
	case interface{ Append([]byte) error }: // a dictionary of bytes
		if err := b.Append([]byte(words[rng.IntN(len(words))])); err != nil {
			panic(err)
		}
		return
	default:
		if err := to.AppendValueFromString(words[rng.IntN(len(words))]); err != nil {
			panic(err)
		}
		return
	}
	for range n {
		appendRandom(rng, list, words, nulls)
	}
}

// written returns batches as a stream, as an Arrow file and, if it has their type, as Parquet.
func written(t *testing.T, rng *rand.Rand, kind arrow.DataType, records []arrow.Record) map[string][]byte {
	t.Helper()
	options := [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}}[rng.IntN(3)]
	_, dictionary := kind.(*arrow.DictionaryType)
	if dictionary {
		options = append(options, ipc.WithDictionaryDeltas(rng.IntN(2) == 0))
	}
	all := map[string][]byte{"stream": stream(records, options)}
	if !dictionary || len(records) == 1 { // an Arrow file cannot replace a dictionary
		all["file"] = arrowFile(records, options)
	}
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
		apache.WithEncodingFor("text", encoding), apache.WithEncodingFor("text.list.element", encoding),
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
