// Package arrowipc reads and writes the part of the Arrow IPC format that training text, tokens and
// routes need. It trusts no byte: every length and position is checked against the available data
// before memory is allocated or read.
//
// [Text] reads a column of strings, or of lists of strings, from a stream or a file (Feather
// version 2) of any schema, record batch by record batch. [Tokens] is a file of lists of integers
// that is used in place, and [WriteTokens] writes one. [NumberWriter] and [NumberReader] write and
// read a stream of columns of numbers.
//
// Source: Apache Arrow, "Columnar format", version 1.5, with Schema.fbs, Message.fbs and File.fbs.
package arrowipc

import "fmt"

// The types of columns, by their number in Schema.fbs.
const (
	typeNull            = 1
	typeInt             = 2
	typeFloat           = 3
	typeBinary          = 4
	typeUTF8            = 5
	typeList            = 12
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
	mostFields          = 1 << 16 // in a schema, including nested ones
	mostDepth           = 32      // nesting of fields
	headerSchema        = 1
	headerDictionary    = 2
	headerRecordBatch   = 3
	denseUnion          = 1
	singlePrecision     = 1
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

// column says where the parts of a column are in a record batch.
type column struct {
	name       string
	kind       uint8
	dictionary bool
	field      table
	node       int // index in the vector of nodes
	buffer     int // index of the first one in the vector of buffers
	views      int // earlier columns with a variable number of further buffers
}

// layout counts nodes and buffers over the fields of a schema, depth first.
type layout struct {
	nodes, buffers, views, fields int
	// metadata before version 5, in which unions have a validity bitmap
	old bool
}

// columns returns the top-level columns of a schema.
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

// fault returns the first error of a buffer; nil: none.
func (f *buffer) fault() error {
	if f == nil {
		return fmt.Errorf("the metadata has no schema")
	}
	return f.err
}

// pass counts a field and its descendants.
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
