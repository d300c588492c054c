package step

// Files of torch.save, read without running anything. Their pickle may hold tensors, numbers,
// strings, dictionaries, lists and tuples. Every other opcode and every other global is refused by
// name. Source of the opcodes: Lib/pickletools.py of CPython.

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"

	"spmoe/launcher/system"
)

const mostPickle = 16 << 20 // bytes; tensors are outside of it

type (
	mark   struct{} // begins the arguments of an opcode that takes several
	global string   // a name that a pickle refers to: "torch._utils._rebuild_tensor_v2"
	call   struct { // what a pickle asks to call; persistent ids have no name
		name      global
		arguments []any
	}
)

// unpickler is a stack machine. After an error it goes on with zeros until the error is seen.
type unpickler struct {
	rest  []byte
	stack []any
	memo  map[uint64]any
	err   error
}

// unpickle returns the object of a pickle. Tuples are []any, lists *[]any, dictionaries
// map[string]any and integers int64.
func unpickle(data []byte) (any, error) {
	u := &unpickler{rest: data, memo: map[uint64]any{}}
	for u.err == nil {
		op := u.number(1)
		if op == '.' && u.err == nil {
			return u.pop(1)[0], u.err
		}
		u.execute(byte(op))
	}
	return nil, fmt.Errorf("pickle, before byte %d: %w", len(data)-len(u.rest), u.err)
}

func (u *unpickler) fail(format string, values ...any) {
	if u.err == nil {
		u.err = fmt.Errorf(format, values...)
	}
}

func (u *unpickler) take(n uint64) []byte {
	if n > uint64(len(u.rest)) {
		u.fail("it ends where %d bytes are expected", n)
		return nil
	}
	part := u.rest[:n]
	u.rest = u.rest[n:]
	return part
}

// number reads a little-endian number of n bytes.
func (u *unpickler) number(n uint64) uint64 {
	if n > 8 {
		u.fail("an integer of %d bytes: expected at most 8", n)
		return 0
	}
	var raw [8]byte
	copy(raw[:], u.take(n))
	return binary.LittleEndian.Uint64(raw[:])
}

func (u *unpickler) push(value any) { u.stack = append(u.stack, value) }

// pop removes the last n values.
func (u *unpickler) pop(n int) []any {
	at := len(u.stack) - n
	if at < 0 || slices.Contains(u.stack[at:], any(mark{})) {
		u.fail("its stack has fewer than %d values", n)
		return make([]any, n)
	}
	values := slices.Clone(u.stack[at:])
	u.stack = u.stack[:at]
	return values
}

// popMarked removes the values since the last mark, and the mark.
func (u *unpickler) popMarked() []any {
	for at := len(u.stack) - 1; at >= 0; at-- {
		if u.stack[at] == any(mark{}) {
			values := slices.Clone(u.stack[at+1:])
			u.stack = u.stack[:at]
			return values
		}
	}
	u.fail("a mark is missing")
	return nil
}

func (u *unpickler) execute(op byte) {
	switch op {
	case 0x80: // PROTO
		u.take(1)
	case 'N':
		u.push(nil)
	case 0x88, 0x89:
		u.push(op == 0x88)
	case 'K':
		u.push(int64(u.number(1)))
	case 'M':
		u.push(int64(u.number(2)))
	case 'J':
		u.push(int64(int32(u.number(4))))
	case 0x8a: // LONG1: two's complement
		n := u.number(1)
		shift := 64 - 8*n
		u.push(int64(u.number(n)<<shift) >> shift)
	case 'G':
		u.push(math.Float64frombits(bits.ReverseBytes64(u.number(8))))
	case 'X':
		u.push(string(u.take(u.number(4))))
	case 'q', 'r': // BINPUT
		top := u.pop(1)[0]
		u.push(top)
		u.memo[u.number(map[byte]uint64{'q': 1, 'r': 4}[op])] = top
	case 'h', 'j': // BINGET
		value, ok := u.memo[u.number(map[byte]uint64{'h': 1, 'j': 4}[op])]
		if !ok {
			u.fail("it refers to a value that it has not stored")
		}
		u.push(value)
	case '(':
		u.push(mark{})
	case ')':
		u.push([]any{})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		u.push(u.pop(int(op - 0x84)))
	case 't':
		u.push(u.popMarked())
	case '}':
		u.push(map[string]any{})
	case ']':
		u.push(&[]any{})
	case 's', 'a':
		u.add(u.pop(map[byte]int{'s': 2, 'a': 1}[op]))
	case 'u', 'e':
		u.add(u.popMarked())
	case 'c':
		u.global()
	case 'Q': // BINPERSID
		id, _ := u.pop(1)[0].([]any)
		u.push(call{"", id})
	case 'R':
		u.reduce(u.pop(2))
	default:
		u.fail("opcode 0x%02x is refused: a file may hold tensors, numbers, strings, dictionaries, lists and tuples", op)
	}
}

// add adds values to the list, or keys and values in turn to the dictionary below them.
func (u *unpickler) add(values []any) {
	below := u.pop(1)[0]
	switch to := below.(type) {
	case *[]any:
		*to = append(*to, values...)
	case map[string]any:
		for i := 0; i+1 < len(values); i += 2 {
			name, ok := values[i].(string)
			if to[name] = values[i+1]; !ok {
				u.fail("a key of a dictionary is no string")
			}
		}
	default:
		u.fail("values are added to what is no list and no dictionary")
	}
	u.push(below)
}

// torchTypes are the names of torch's types and of their storages.
var torchTypes = map[global]string{
	"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
	"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
	"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16", "LongStorage": "I64",
	"IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL", "storage.UntypedStorage": "U8",
}

// functions are the globals that may be called. Those of parameters return their first argument.
var functions = []string{
	"collections.OrderedDict", "torch.Size", "torch.device", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3",
	"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
}

func (u *unpickler) global() {
	module, rest, _ := bytes.Cut(u.rest, []byte("\n"))
	name, rest, ok := bytes.Cut(rest, []byte("\n"))
	full := string(module) + "." + string(name)
	kind := global(strings.TrimPrefix(full, "torch."))
	switch {
	case !ok:
		u.fail("it ends within a name")
	case slices.Contains(functions, full):
		u.push(global(full))
	case torchTypes[kind] != "" && full != string(kind):
		u.push(kind)
	default:
		u.fail("%.100q is refused: a file may refer to torch's tensors, and to nothing else", full)
	}
	u.rest = rest
}

func (u *unpickler) reduce(pair []any) {
	name, _ := pair[0].(global)
	arguments, ok := pair[1].([]any)
	switch {
	case !ok || !slices.Contains(functions, string(name)):
		u.fail("a call of %.100v is refused", pair[0])
	case name == "collections.OrderedDict":
		u.push(map[string]any{})
	case strings.Contains(string(name), "_rebuild_parameter") && len(arguments) > 0:
		u.push(arguments[0])
	default:
		u.push(call{name, arguments})
	}
}

// readTorch opens a file of torch.save that holds a dictionary. Its value "value" becomes an entry
// if it is a tensor.
func readTorch(path string) (map[string]any, error) {
	file, size, err := system.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return nil, fmt.Errorf("%w (expected a file of torch.save, version 1.6 or later)", err)
	}
	members := map[string]*zip.File{}
	for _, member := range archive.File {
		_, name, _ := strings.Cut(member.Name, "/")
		members[name] = member
	}
	text, err := content(members["data.pkl"])
	if err != nil {
		return nil, err
	}
	if order, err := content(members["byteorder"]); err == nil && string(order) != "little" {
		return nil, fmt.Errorf("its bytes are in the order %.20q: expected little", order)
	}
	value, err := unpickle(text)
	object, ok := value.(map[string]any)
	if err == nil && !ok {
		err = errors.New("expected a dictionary with value and meta, as sglang's dumper writes it")
	}
	if tensor, ok := object["value"].(call); ok && err == nil {
		object["value"], err = locateTensor(path, size, tensor.arguments, members)
	}
	return object, err
}

// content reads a small member of an archive.
func content(member *zip.File) ([]byte, error) {
	if member == nil || member.UncompressedSize64 > mostPickle {
		return nil, fmt.Errorf("data.pkl is missing or has more than %d bytes", mostPickle)
	}
	r, err := member.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, mostPickle))
}

// locateTensor finds the tensor ((storage, type, key, device, elements), offset, dims, strides,
// requires_grad, hooks, dtype): dtype only if the storage is one of bytes.
func locateTensor(path string, size int64, description []any, members map[string]*zip.File) (entry, error) {
	unlike := errors.New("the description of a tensor is not torch's")
	if len(description) < 4 {
		return entry{}, unlike
	}
	of, ok1 := description[0].(call)
	offset, ok2 := description[1].(int64)
	dims, ok3 := sizes(description[2])
	strides, ok4 := sizes(description[3])
	if !ok1 || !ok2 || !ok3 || !ok4 || len(of.arguments) < 3 || len(dims) != len(strides) {
		return entry{}, unlike
	}
	kind, _ := of.arguments[1].(global)
	if len(description) > 6 {
		if of, ok := description[6].(global); ok {
			kind = of
		}
	}
	name, _ := of.arguments[2].(string)
	e := entry{view: view{int(offset), dims, strides}, file: path, dtype: torchTypes[kind]}
	member := members["data/"+name]
	width := uint64(elementTypes[e.dtype].width)
	if member == nil || member.Method != zip.Store || width == 0 {
		return e, fmt.Errorf("the storage %.20q of a tensor is missing, compressed or of no type", name)
	}
	if elements := min(int64(member.UncompressedSize64/width), size); offset < 0 || offset > elements || e.span() > elements-offset {
		return e, fmt.Errorf("a tensor of %v elements with strides %v from %d on exceeds its storage of %d", dims, strides, offset, elements)
	}
	base, err := member.DataOffset()
	e.read = func(p []byte, off int64) error {
		file, _, err := system.OpenRegular(path) // there may be more files than can be open
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.ReadFull(io.NewSectionReader(file, base+off, int64(len(p))), p)
		return err
	}
	return e, err
}

// sizes returns a tuple of non-negative integers.
func sizes(value any) ([]int, bool) {
	list, ok := value.([]any)
	if size, is := value.(call); is && len(size.arguments) == 1 { // torch.Size
		list, ok = size.arguments[0].([]any)
	}
	result := make([]int, len(list))
	for i, element := range list {
		n, is := element.(int64)
		ok = ok && is && n >= 0
		result[i] = int(n)
	}
	return result, ok && len(list) <= 32
}
