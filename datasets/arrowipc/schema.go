// Package arrowipc reads and writes the part of the Arrow IPC format that training text and tokens
// need, and trusts no byte of it: every length and position is checked against what there is before
// memory is taken or read.
//
// [Text] reads a column of strings from a stream or a file (Feather version 2) of any schema,
// record batch by record batch. [Tokens] is a file of lists of integers that is used where it lies
// in memory, and [WriteTokens] writes one.
//
// Source: Apache Arrow, "Columnar format", version 1.5, with Schema.fbs, Message.fbs and File.fbs.
package arrowipc

import "fmt"

// The types of columns, by their number in Schema.fbs.
const (
	typeNull            = 1
	typeInt             = 2
	typeBinary          = 4
	typeUTF8            = 5
	typeStruct          = 13
	typeUnion           = 14
	typeFixedSizeList   = 16
	typeLargeBinary     = 19
	typeLargeUTF8       = 20
	typeLargeList       = 21
	typeRunEndEncoded   = 22
	typeBinaryView      = 23
	typeUTF8View        = 24
	typeListView        = 25
	typeLargeListView   = 26
	metadataV5          = 4
	mostFields          = 1 << 16 // of a schema, nested ones included
	mostDepth           = 32      // of nested fields
	headerSchema        = 1
	headerDictionary    = 2
	headerRecordBatch   = 3
	denseUnion          = 1
	compressionLZ4Frame = 0
	compressionZstd     = 1
)

var typeNames = [...]string{
	"none", "null", "integer", "floating point", "binary", "string", "bool", "decimal", "date", "time", "timestamp", "interval", "list",
	"struct", "union", "fixed-size binary", "fixed-size list", "map", "duration", "large_binary", "large_string", "large_list",
	"run-end encoded", "binary view", "string view", "list view", "large list view",
}

func typeName(kind uint8) string {
	if int(kind) < len(typeNames) {
		return typeNames[kind]
	}
	return fmt.Sprintf("unknown (%d)", kind)
}

// column is where the parts of a column lie in a record batch.
type column struct {
	name       string
	kind       uint8
	dictionary bool
	field      table
	node       int // of the vector of nodes
	buffer     int // the first one, of the vector of buffers
	views      int // columns before it that have a variable number of buffers more
}

// layout counts nodes and buffers as the fields of a schema come, depth first.
type layout struct {
	nodes, buffers, views, fields int
	old                           bool // metadata before version 5, in which unions have a validity bitmap
}

// columns returns the columns at the top of a schema.
func columns(schema table, version int16) ([]column, error) {
	if schema.i16(0) != 0 {
		return nil, fmt.Errorf("the file is big-endian: expected little-endian")
	}
	l := layout{old: version < metadataV5}
	var all []column
	for _, f := range schema.tables(1) {
		all = append(all, column{
			name: f.string(0), kind: f.u8(2), dictionary: f.has(4), field: f, node: l.nodes, buffer: l.buffers, views: l.views,
		})
		if err := l.pass(f, 0); err != nil {
			return nil, err
		}
	}
	return all, schema.f.fault()
}

// fault returns the first error of a buffer, nil for none.
func (f *buffer) fault() error {
	if f == nil {
		return fmt.Errorf("the metadata has no schema")
	}
	return f.err
}

// pass counts a field and those below it.
func (l *layout) pass(f table, depth int) error {
	if l.fields++; l.fields > mostFields || depth > mostDepth {
		return fmt.Errorf("the schema has more than %d fields, or fields nested deeper than %d", mostFields, mostDepth)
	}
	kind := f.u8(2)
	l.nodes++
	if f.has(4) { // the indices into a dictionary
		l.buffers += 2
		return f.f.err
	}
	switch kind {
	case typeNull, typeRunEndEncoded:
	case typeStruct, typeFixedSizeList:
		l.buffers++
	case typeUnion:
		l.buffers++
		if f.table(3).i16(0) == denseUnion {
			l.buffers++
		}
		if l.old {
			l.buffers++
		}
	case typeBinary, typeUTF8, typeLargeBinary, typeLargeUTF8, typeListView, typeLargeListView:
		l.buffers += 3
	case typeBinaryView, typeUTF8View:
		l.buffers += 2
		l.views++
	default:
		if int(kind) >= len(typeNames) || kind == 0 {
			return fmt.Errorf("column %.50q is of type %s", f.string(0), typeName(kind))
		}
		l.buffers += 2
	}
	for _, child := range f.tables(5) {
		if err := l.pass(child, depth+1); err != nil {
			return err
		}
	}
	return f.f.err
}

// keyValues returns the metadata in field i of a table.
func keyValues(t table, i int) map[string]string {
	all := map[string]string{}
	for _, kv := range t.tables(i) {
		all[kv.string(0)] = kv.string(1)
	}
	return all
}
