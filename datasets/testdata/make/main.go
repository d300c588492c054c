// Make writes the test files of datasets next to it, with writers that share no code with its
// readers: parquet-go and Apache Arrow's Go implementation. It is a separate module, so that spmoe
// needs neither. Its tests compare the readers of datasets with Apache Arrow's.
//
//	cd datasets/testdata/make && go run . ..
//
// Given a token file or a stream, it prints what Apache Arrow's reader finds in it.
//
//	go run . -read tokens.arrow
//	go run . -read routes.arrow
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	apache "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/parquet-go/parquet-go"
	codec "github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"
)

type row struct {
	ID   int64    `json:"id" parquet:"id"`
	Tags []string `json:"tags" parquet:"tags,list"`
	Text *string  `json:"text" parquet:"text,optional"`
}

// rows has nulls, empty and repeated strings, common prefixes and characters of every length.
func rows() []row {
	var all []row
	for i := range 90 {
		r := row{ID: int64(i), Tags: []string{"a", "b"}[:i%3%2+i%2]}
		text := fmt.Sprintf("document %d: %s", i/2, strings.Repeat("grüße, 世界 🌍 ", i%5))
		switch i % 9 {
		case 3:
			text = ""
		case 5:
			text = "the same again"
		}
		if i%9 != 7 {
			r.Text = &text
		}
		all = append(all, r)
	}
	return all
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-read" {
		read(os.Args[2])
		return
	}
	if len(os.Args) != 2 {
		log.Fatal("give the folder to write to")
	}
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	for _, r := range rows() {
		check(out.Encode(r))
	}
	write("rows.jsonl", lines.Bytes())
	for name, c := range map[string]codec.Codec{
		"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "zstd": &parquet.Zstd, "lz4": &parquet.Lz4Raw,
	} {
		write("pg-"+name+"-v1.parquet", segment(c, &parquet.Plain, 1))
		write("pg-"+name+"-v2.parquet", segment(c, &parquet.RLEDictionary, 2))
	}
	write("pg-delta-length.parquet", segment(&parquet.Zstd, &parquet.DeltaLengthByteArray, 2))
	write("pg-delta.parquet", segment(&parquet.Snappy, &parquet.DeltaByteArray, 1))
	for name, c := range map[string]compress.Compression{
		"none": compress.Codecs.Uncompressed, "snappy": compress.Codecs.Snappy, "gzip": compress.Codecs.Gzip, "zstd": compress.Codecs.Zstd,
	} {
		write("pa-"+name+"-v1.parquet", arrowParquet(apache.WithCompression(c), apache.WithDataPageVersion(apache.DataPageV1), apache.WithDictionaryDefault(name == "zstd")))
		write("pa-"+name+"-v2.parquet", arrowParquet(apache.WithCompression(c), apache.WithDataPageVersion(apache.DataPageV2), apache.WithDictionaryDefault(name != "zstd")))
	}
	write("others/pa-empty-groups.parquet", arrowParquet(apache.WithDictionaryDefault(true)))
	// The strings of a page share prefixes with those of the page before.
	delta := apache.WithEncodingFor("text", apache.Encodings.DeltaByteArray)
	write("others/pa-delta.parquet", arrowParquet(apache.WithDictionaryDefault(false), delta))
	for _, large := range []bool{false, true} {
		for name, options := range map[string][]ipc.Option{"none": nil, "zstd": {ipc.WithZstd()}, "lz4": {ipc.WithLZ4()}} {
			if large {
				name = "large-" + name
			}
			write("stream-"+name+".arrow", stream(records(large), options))
			write("file-"+name+".arrow", arrowFile(records(large), options))
			if !large {
				write("numbers-"+name+".arrow", stream(numbers(), options))
			}
		}
	}
	write("tokens.arrow", arrowFile(tokens(), nil))
}

// tokens are two batches of lists, as in a token file.
func tokens() []arrow.Record {
	metadata := arrow.NewMetadata(
		[]string{"spmoe.tokens", "spmoe.tokenizer", "spmoe.vocab", "spmoe.train", "spmoe.held_out", "spmoe.train_bytes", "spmoe.held_out_bytes"},
		[]string{"1", "bytes", "256", "training", "held-out", "6", "2"})
	kind := arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Uint16)
	schema := arrow.NewSchema([]arrow.Field{{Name: "tokens", Type: kind}}, &metadata)
	var all []arrow.Record
	for _, lists := range [][][]uint16{{{104, 101, 121, 0}, {111, 104, 33, 0}}, {{111, 107, 0}}} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		lb := b.Field(0).(*array.LargeListBuilder)
		for _, list := range lists {
			lb.Append(true)
			lb.ValueBuilder().(*array.Uint16Builder).AppendValues(list, nil)
		}
		all = append(all, b.NewRecord())
	}
	return all
}

// numbers are two batches of numbers and lists of them.
func numbers() []arrow.Record {
	metadata := arrow.NewMetadata([]string{"key"}, []string{"value"})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "pair", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Uint16)},
		{Name: "nullable", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32), Nullable: true},
	}, &metadata)
	var all []arrow.Record
	for batch := range 2 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		pairs, triples := b.Field(1).(*array.FixedSizeListBuilder), b.Field(2).(*array.FixedSizeListBuilder)
		for row := range 100 {
			n := 100*batch + row
			b.Field(0).(*array.Int32Builder).Append(int32(-n))
			pairs.Append(true)
			pairs.ValueBuilder().(*array.Uint16Builder).AppendValues([]uint16{uint16(n), uint16(65535 - n)}, nil)
			triples.Append(true)
			triples.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{float32(n), float32(n) / 2, 1}, nil)
		}
		all = append(all, b.NewRecord())
	}
	return all
}

// read prints the schema and the record batches of an Arrow file or stream.
func read(path string) {
	in, err := os.Open(path)
	check(err)
	if s, err := ipc.NewReader(in); err == nil {
		fmt.Println(s.Schema())
		for s.Next() {
			fmt.Println(s.Record())
		}
		check(s.Err())
		return
	}
	r, err := ipc.NewFileReader(in)
	check(err)
	fmt.Println(r.Schema())
	for i := range r.NumRecords() {
		record, err := r.Record(i)
		check(err)
		fmt.Println(record)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// segment is a file of parquet-go with several row groups and pages.
func segment(c codec.Codec, e encoding.Encoding, version int) []byte {
	schema := parquet.NewSchema("row", parquet.Group{
		"id": parquet.Int(64), "tags": parquet.List(parquet.String()), "text": parquet.Compressed(parquet.Optional(parquet.Encoded(parquet.String(), e)), c),
	})
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, schema, parquet.DataPageVersion(version), parquet.PageBufferSize(600), parquet.MaxRowsPerRowGroup(50))
	_, err := w.Write(rows())
	check(err)
	check(w.Close())
	return b.Bytes()
}

// record holds the rows [from, to), next to columns with other layouts.
func record(large bool, from, to int) arrow.Record {
	var kind arrow.DataType = arrow.BinaryTypes.String
	if large {
		kind = arrow.BinaryTypes.LargeString
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "nested", Type: arrow.StructOf(arrow.Field{Name: "text", Type: kind}, arrow.Field{Name: "ok", Type: arrow.FixedWidthTypes.Boolean})},
		{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String)},
		{Name: "pair", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32)},
		{Name: "nothing", Type: arrow.Null},
		{Name: "text", Type: kind, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	appendTo := func(b array.Builder, s string) {
		if large {
			b.(*array.LargeStringBuilder).Append(s)
		} else {
			b.(*array.StringBuilder).Append(s)
		}
	}
	for _, r := range rows()[from:to] {
		b.Field(0).(*array.Int64Builder).Append(r.ID)
		nested := b.Field(1).(*array.StructBuilder)
		nested.Append(true)
		appendTo(nested.FieldBuilder(0), "not this")
		nested.FieldBuilder(1).(*array.BooleanBuilder).Append(true)
		tags := b.Field(2).(*array.ListBuilder)
		tags.Append(true)
		for _, tag := range r.Tags {
			tags.ValueBuilder().(*array.StringBuilder).Append(tag)
		}
		pair := b.Field(3).(*array.FixedSizeListBuilder)
		pair.Append(true)
		pair.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{1, 2}, nil)
		b.Field(4).AppendNull()
		if r.Text == nil {
			b.Field(5).AppendNull()
		} else {
			appendTo(b.Field(5), *r.Text)
		}
	}
	return b.NewRecord()
}

func records(large bool) []arrow.Record {
	return []arrow.Record{record(large, 0, 40), record(large, 40, 40), record(large, 40, 90)}
}

func stream(all []arrow.Record, options []ipc.Option) []byte {
	var b bytes.Buffer
	w := ipc.NewWriter(&b, append(options, ipc.WithSchema(all[0].Schema()))...)
	for _, r := range all {
		check(w.Write(r))
	}
	check(w.Close())
	return b.Bytes()
}

func arrowFile(all []arrow.Record, options []ipc.Option) []byte {
	out, err := os.CreateTemp("", "file")
	check(err)
	defer os.Remove(out.Name())
	w, err := ipc.NewFileWriter(out, append(options, ipc.WithSchema(all[0].Schema()))...)
	check(err)
	for _, r := range all {
		check(w.Write(r))
	}
	check(w.Close())
	content, err := os.ReadFile(out.Name())
	check(err)
	check(out.Close())
	return content
}

// arrowParquet is a file of Apache Arrow's implementation, without null columns, which Parquet does
// not have.
func arrowParquet(options ...apache.WriterProperty) []byte {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String)}, {Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	var b bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &b, apache.NewWriterProperties(append(options, apache.WithDataPageSize(500), apache.WithBatchSize(10))...), pqarrow.DefaultWriterProps())
	check(err)
	spans := [][2]int{{0, 40}, {40, 90}}
	if len(options) == 1 { // with row groups without rows
		spans = [][2]int{{0, 0}, {0, 40}, {40, 40}, {40, 90}, {90, 90}}
	}
	for _, span := range spans {
		r := record(false, span[0], span[1])
		check(w.Write(array.NewRecord(schema, []arrow.Array{r.Column(0), r.Column(2), r.Column(5)}, r.NumRows())))
	}
	check(w.Close())
	return b.Bytes()
}
