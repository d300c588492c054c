// Package arrowipc reads and writes the part of the Arrow IPC format that tokens and routes need.
// It trusts no byte: every length and position is checked against the available data before memory
// is allocated or read.
//
// [Tokens] is a file of lists of integers that is used in place, and [WriteTokens] writes one.
// [NumberWriter] and [NumberReader] write and read a stream of columns of numbers.
//
// Source: Apache Arrow, "Columnar format", version 1.5, with Schema.fbs, Message.fbs and File.fbs.
package arrowipc

import (
	"errors"
	"fmt"
)

// The types of columns, by their number in Schema.fbs, and other constants of the format.
const (
	typeInt           = 2
	typeFloat         = 3
	typeFixedSizeList = 16
	typeLargeList     = 21
	metadataV5        = 4
	mostFields        = 1 << 16 // in a list of the metadata
	headerSchema      = 1
	headerRecordBatch = 3
	singlePrecision   = 1
	compressionZstd   = 1
)

// columns returns the fields of a schema.
func columns(schema table) ([]table, error) {
	if schema.f == nil {
		return nil, errors.New("the metadata has no schema")
	}
	if schema.i16(0) != 0 {
		return nil, fmt.Errorf("the file is big-endian: expected little-endian")
	}
	return schema.tables(1), schema.f.err
}

// keyValues returns the metadata in field i of a table.
func keyValues(t table, i int) map[string]string {
	all := map[string]string{}
	for _, kv := range t.tables(i) {
		all[kv.string(0)] = kv.string(1)
	}
	return all
}
