package step

// Files of torch.save, read without running anything. Their pickle may hold tensors, numbers,
// strings, dictionaries, lists and tuples. Every other opcode and every other global is refused by
// name. Source of the opcodes: Lib/pickletools.py of CPython.

import (
	"archive/zip"
	"bytes"
	"cmp"
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

// global is a name that a pickle refers to: "torch._utils._rebuild_tensor_v2".
type global string

// call is what a pickle asks to call. It has no name if it is a storage.
type call struct {
	name      global
	arguments []any
}

// unpickler is a stack machine. It panics with a refusal where a pickle is damaged, or asks for
// something else.
type unpickler struct {
	rest  []byte
	stack []any
	below [][]any // the stacks below each open mark
	memo  map[uint64]any
}

type refusal struct{ error }

// opcodes are those that may be in a pickle.
var opcodes = map[byte]func(u *unpickler){
	0x80: func(u *unpickler) { u.take(1) }, // PROTO
	'N':  func(u *unpickler) { u.push(nil) },
	0x88: func(u *unpickler) { u.push(true) },
	0x89: func(u *unpickler) { u.push(false) },
	'K':  func(u *unpickler) { u.push(int64(u.number(1))) },
	'M':  func(u *unpickler) { u.push(int64(u.number(2))) },
	'J':  func(u *unpickler) { u.push(int64(int32(u.number(4)))) },
	0x8a: func(u *unpickler) { // LONG1: two's complement
		n := u.number(1)
		u.push(int64(u.number(n)<<(64-8*n)) >> (64 - 8*n))
	},
	'G': func(u *unpickler) { u.push(math.Float64frombits(bits.ReverseBytes64(u.number(8)))) },
	'X': func(u *unpickler) { u.push(string(u.take(u.number(4)))) },
	'q': func(u *unpickler) { u.memo[u.number(1)] = u.top() },
	'r': func(u *unpickler) { u.memo[u.number(4)] = u.top() },
	'h': func(u *unpickler) { u.push(u.memo[u.number(1)]) },
	'j': func(u *unpickler) { u.push(u.memo[u.number(4)]) },
	'(': func(u *unpickler) { // MARK
		u.below = append(u.below, u.stack)
		u.stack = nil
	},
	')':  func(u *unpickler) { u.push([]any{}) },
	0x85: func(u *unpickler) { u.push(u.pop(1)) },
	0x86: func(u *unpickler) { u.push(u.pop(2)) },
	0x87: func(u *unpickler) { u.push(u.pop(3)) },
	't':  func(u *unpickler) { u.push(u.marked()) },
	'}':  func(u *unpickler) { u.push(map[string]any{}) },
	']':  func(u *unpickler) { u.push(&[]any{}) },
	's':  func(u *unpickler) { u.add(u.pop(2)) },
	'u':  func(u *unpickler) { u.add(u.marked()) },
	'a':  func(u *unpickler) { u.add(u.pop(1)) },
	'e':  func(u *unpickler) { u.add(u.marked()) },
	'c':  func(u *unpickler) { u.global() },
	'Q':  func(u *unpickler) { u.push(call{"", as[[]any](u.pop(1), 0)}) }, // BINPERSID
	'R': func(u *unpickler) { // REDUCE: a call is noted instead of made
		pair := u.pop(2)
		name := as[global](pair, 0)
		u.require(slices.Contains(callables, string(name)), "a call of %.100v is refused", pair[0])
		u.push(call{name, as[[]any](pair, 1)})
	},
}

// unpickle returns the object of a pickle. Tuples are []any, lists *[]any, dictionaries
// map[string]any and integers int64.
func unpickle(data []byte) (object any, err error) {
	u := &unpickler{rest: data, memo: map[uint64]any{}}
	defer func() {
		switch why := recover().(type) {
		case nil:
		case refusal:
			err = fmt.Errorf("pickle, before byte %d: %w", len(data)-len(u.rest), why.error)
		default:
			panic(why)
		}
	}()
	for {
		op := byte(u.number(1))
		if op == '.' {
			return u.top(), nil
		}
		run := opcodes[op]
		u.require(run != nil, "opcode 0x%02x is refused: a file may hold tensors, numbers, strings, dictionaries, lists and tuples", op)
		run(u)
	}
}

func (u *unpickler) require(ok bool, format string, values ...any) {
	if !ok {
		panic(refusal{fmt.Errorf(format, values...)})
	}
}

func (u *unpickler) take(n uint64) []byte {
	u.require(n <= uint64(len(u.rest)), "it ends where %d bytes are expected", n)
	part := u.rest[:n]
	u.rest = u.rest[n:]
	return part
}

// number reads a little-endian number of at most 8 bytes.
func (u *unpickler) number(n uint64) uint64 {
	var raw [8]byte
	u.require(n <= 8, "an integer of %d bytes: expected at most 8", n)
	copy(raw[:], u.take(n))
	return binary.LittleEndian.Uint64(raw[:])
}

func (u *unpickler) push(value any) { u.stack = append(u.stack, value) }

// pop removes the last n values.
func (u *unpickler) pop(n int) []any {
	at := len(u.stack) - n
	u.require(at >= 0, "its stack has fewer than %d values", n)
	values := slices.Clone(u.stack[at:])
	u.stack = u.stack[:at]
	return values
}

func (u *unpickler) top() any {
	top := u.pop(1)[0]
	u.push(top)
	return top
}

// marked removes the values since the last mark, and the mark.
func (u *unpickler) marked() []any {
	last := len(u.below) - 1
	u.require(last >= 0, "a mark is missing")
	values := u.stack
	u.stack, u.below = u.below[last], u.below[:last]
	return values
}

// add adds values to the list, or keys and values in turn to the dictionary below them.
func (u *unpickler) add(values []any) {
	if list, ok := u.top().(*[]any); ok {
		*list = append(*list, values...)
		return
	}
	to, ok := u.top().(map[string]any)
	for pair := range slices.Chunk(values, 2) {
		_, isText := pair[0].(string)
		_, isNumber := pair[0].(int64)
		u.require(ok && (isText || isNumber) && len(pair) == 2, "values are added to what is no list, and no dictionary with texts or integers as keys")
		to[fmt.Sprint(pair[0])] = pair[1]
	}
}

// callables are what a pickle may call. It may also refer to the types of formats.
var callables = strings.Fields("collections.OrderedDict Size device _utils._rebuild_tensor_v2 _utils._rebuild_tensor_v3 _utils._rebuild_parameter _utils._rebuild_parameter_with_state")

// format returns which of formats a type or a storage has, and "" for any other name.
func (name global) format() string {
	for dtype, of := range formats {
		if slices.Contains(strings.Fields(of.torch), string(name)) {
			return dtype
		}
	}
	return ""
}

// global pushes the name that follows.
func (u *unpickler) global() {
	var lines [2][]byte
	for i := range lines {
		lines[i], u.rest, _ = bytes.Cut(u.rest, []byte("\n"))
	}
	full := fmt.Sprintf("%s.%s", lines[0], lines[1])
	short := strings.TrimPrefix(full, "torch.")
	u.require(global(short).format() != "" || slices.Contains(callables, short), "%.100q is refused: a file may refer to torch's tensors, and to nothing else", full)
	u.push(global(short))
}

// sizes returns a tuple of non-negative integers, and nil for anything else.
func sizes(value any) []int {
	list, _ := value.([]any)
	result := []int{}
	for i := range list {
		n, ok := list[i].(int64)
		if !ok || n < 0 || i == 32 {
			return nil
		}
		result = append(result, int(n))
	}
	return result
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
	text := members["data.pkl"]
	if text == nil || text.UncompressedSize64 > mostPickle {
		return nil, fmt.Errorf("data.pkl is missing, or has more than %d bytes", mostPickle)
	}
	reader, err := text.Open()
	if err != nil {
		return nil, err
	}
	pickle, err := io.ReadAll(io.LimitReader(reader, mostPickle))
	if err != nil {
		return nil, err
	}
	value, err := unpickle(pickle)
	object, ok := value.(map[string]any)
	if err == nil && !ok {
		err = errors.New("expected a dictionary with value and meta, as sglang's dumper writes it")
	}
	if tensor, ok := object["value"].(call); ok && err == nil {
		object["value"], err = locateTensor(path, size, tensor.arguments, members)
	}
	return object, err
}

// as returns an element of a tuple, or the zero value if it is missing or of another type.
func as[T any](tuple []any, i int) (value T) {
	if i < len(tuple) {
		value, _ = tuple[i].(T)
	}
	return value
}

// locateTensor finds the tensor ((storage, type, key, device, elements), offset, dims, strides,
// requires_grad, hooks, dtype): dtype only if the storage is one of bytes.
func locateTensor(path string, size int64, of []any, members map[string]*zip.File) (e entry, err error) {
	if tensor := as[call](of, 0); tensor.name != "" { // of a parameter
		of = tensor.arguments
	}
	storage := as[call](of, 0).arguments
	kind := cmp.Or(as[global](of, 6), as[global](storage, 1))
	name := as[string](storage, 2)
	offset := as[int64](of, 1)
	e.file = path
	e.dtype = kind.format()
	e.offset = int(offset)
	e.dims = sizes(as[any](of, 2))
	e.strides = sizes(as[any](of, 3))
	member := members["data/"+name]
	if e.dims == nil || len(e.dims) != len(e.strides) || member == nil || member.Method != zip.Store || formats[e.dtype].width == 0 {
		return e, fmt.Errorf("a tensor's storage %.20q is missing or compressed, or its description is not torch's", name)
	}
	if elements := min(int64(member.UncompressedSize64), size) / formats[e.dtype].width; offset < 0 || offset > elements || e.span() > elements-offset {
		return e, fmt.Errorf("a tensor of %v elements with strides %v from %d on exceeds its storage of %d", e.dims, e.strides, offset, elements)
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
