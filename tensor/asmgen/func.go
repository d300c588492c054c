package asmgen

// A Func prints one assembly function. Arguments have names, registers come from a pool, and there
// are labels and loops.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Param is an argument or result: a name and a Go type.
type Param struct {
	Name, Type string
	result     bool
	fields     []Param
}

// Arg returns an argument of a Go type: a slice, unsafe.Pointer, a pointer, or a number. The words
// of slice x are x_base, x_len and x_cap.
func Arg(name, typ string) Param { return Param{Name: name, Type: typ} }

// IsResult says whether p is a result.
func (p Param) IsResult() bool { return p.result }

// Struct returns an argument that is a struct. Field y of x is x_y.
func Struct(name, typ string, fields ...Param) Param {
	return Param{Name: name, Type: typ, fields: fields}
}

// words returns the arguments that p consists of, which are 1 to 8 bytes.
func (p Param) words() []Param {
	switch {
	case p.fields != nil:
		var all []Param
		for _, f := range p.fields {
			f.Name = p.Name + "_" + f.Name
			all = append(all, f.words()...)
		}
		return all
	case strings.HasPrefix(p.Type, "[]"):
		return []Param{{Name: p.Name + "_base", Type: "unsafe.Pointer"}, {Name: p.Name + "_len", Type: "int"}, {Name: p.Name + "_cap", Type: "int"}}
	}
	return []Param{p}
}

// Signature returns what follows the name of a function in its declaration.
func Signature(params []Param) string {
	var args, results []string
	for _, p := range params {
		if p.result {
			results = append(results, p.Name+" "+p.Type)
		} else {
			args = append(args, p.Name+" "+p.Type)
		}
	}
	s := "(" + strings.Join(args, ", ") + ")"
	if len(results) > 0 {
		s += " (" + strings.Join(results, ", ") + ")"
	}
	return s
}

// Result returns a result. Results come after all arguments.
func Result(name, typ string) Param { return Param{Name: name, Type: typ, result: true} }

func (p Param) size() int {
	switch p.Type {
	case "int8", "uint8", "byte", "bool":
		return 1
	case "int16", "uint16":
		return 2
	case "int32", "uint32", "float32":
		return 4
	case "int", "int64", "uint", "uint64", "uintptr", "float64", "unsafe.Pointer":
		return 8
	}
	if strings.HasPrefix(p.Type, "*") {
		return 8
	}
	panic("asmgen: type " + p.Type + " has no known size: use a number or a pointer")
}

// Func is a function under construction. A vector register is in one pool, whatever its width.
type Func struct {
	f      *File
	name   string
	slots  map[string]frameSlot
	sizes  map[string]int
	regs   []Reg
	vecs   []uint8
	labels int
	lines  *[]string      // where Interleave collects instructions
	taken  map[uint8]bool // vector registers used by the current body of Interleave
	asides []func()       // code to print after the next return
}

// Func begins a function. doc is its Go comment, one paragraph without the slashes, or empty. It is
// a leaf without a frame.
func (f *File) Func(name, doc string, params ...Param) *Func {
	fn := &Func{f: f, name: name, slots: map[string]frameSlot{}, sizes: map[string]int{}}
	fn.regs = slices.Clone(f.arch.general)
	for i := range uint8(32) {
		fn.vecs = append(fn.vecs, i)
	}
	off, results := 0, false
	for _, param := range params {
		for _, p := range param.words() {
			size := p.size()
			if p.result && !results {
				off = (off + 7) &^ 7
			}
			results = p.result
			off = (off + size - 1) &^ (size - 1)
			fn.slots[p.Name] = frameSlot(fmt.Sprintf("%s+%d(FP)", p.Name, off))
			fn.sizes[p.Name] = size
			off += size
		}
	}
	signature := name + Signature(params)
	f.stubs.WriteByte('\n')
	if doc != "" {
		f.stubs.WriteString(wrapped(doc) + "//\n")
	}
	fmt.Fprintf(&f.stubs, "//go:noescape\nfunc %s\n", signature)
	fmt.Fprintf(&f.text, "\n// func %s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", signature, name, off)
	return fn
}

// commentColumns is the width of the comments in Stubs.
const commentColumns = 100

// wrapped returns a paragraph as the lines of a comment.
func wrapped(doc string) string {
	var text strings.Builder
	columns := commentColumns + 1
	for _, word := range strings.Fields(doc) {
		if n := 1 + utf8.RuneCountInString(word); columns+n <= commentColumns {
			text.WriteString(" " + word)
			columns += n
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString("// " + word)
		columns = 3 + utf8.RuneCountInString(word)
	}
	return text.String() + "\n"
}

// Slot returns the memory of an argument or result in the caller's frame.
func (fn *Func) Slot(name string) Operand {
	s, ok := fn.slots[name]
	if !ok {
		panic(fmt.Sprintf("asmgen: %s has no parameter %s", fn.name, name))
	}
	return s
}

// Load takes a register and loads an 8-byte argument into it.
func (fn *Func) Load(name string) Reg {
	s := fn.Slot(name)
	if fn.sizes[name] != 8 {
		panic(fmt.Sprintf("asmgen: %s of %s has %d bytes, not 8: use I with Slot", name, fn.name, fn.sizes[name]))
	}
	r := fn.GP()
	fn.I(fn.f.arch.load, s, r)
	return r
}

// GP takes a free general register. There are 13 on amd64 (not SP, BP, R15) and 23 on arm64.
func (fn *Func) GP() Reg {
	if len(fn.regs) == 0 {
		panic("asmgen: " + fn.name + " is out of general registers: free some")
	}
	r := fn.regs[0]
	fn.regs = fn.regs[1:]
	return r
}

// Z takes the free vector register with the lowest number, as 512 bits. Registers 16 and up need
// AVX-512.
func (fn *Func) Z() Vec {
	if len(fn.vecs) == 0 {
		panic("asmgen: " + fn.name + " is out of vector registers: free some")
	}
	v := fn.vecs[0]
	fn.vecs = fn.vecs[1:]
	if fn.taken != nil {
		fn.taken[v] = true
	}
	return Vec{v, 512}
}

// Y takes a vector register as 256 bits, for AVX2. Only registers 0 to 15 are possible.
func (fn *Func) Y() Vec {
	v := fn.Z()
	if v.id > 15 {
		panic("asmgen: " + fn.name + " is out of AVX2 registers: free some")
	}
	return v.Y()
}

// Zs takes n vector registers.
func (fn *Func) Zs(n int) []Vec { return take(n, fn.Z) }

// Ys takes n AVX2 registers.
func (fn *Func) Ys(n int) []Vec { return take(n, fn.Y) }

func take(n int, one func() Vec) []Vec {
	vs := make([]Vec, n)
	for i := range vs {
		vs[i] = one()
	}
	return vs
}

// Free returns registers to the pool. They are taken next.
func (fn *Func) Free(ops ...Operand) {
	for _, op := range ops {
		switch r := op.(type) {
		case Reg:
			fn.regs = append([]Reg{r}, fn.regs...)
		case Vec:
			fn.vecs = append([]uint8{r.id}, fn.vecs...)
		case Neon:
			fn.vecs = append([]uint8{r.id}, fn.vecs...)
		default:
			panic(fmt.Sprintf("asmgen: cannot free %v", op))
		}
	}
}

// I prints one instruction, with operands in Go's order. Instructions that Go's assembler does not
// support are encoded here (evex.go, amx.go, prefetch.go, neon_encode.go).
func (fn *Func) I(mnemonic string, ops ...Operand) {
	for _, op := range ops {
		if _, ok := op.(Vec); ok && mnemonic[0] != 'V' {
			// This would be an SSE encoding among AVX ones. Some CPUs stall for hundreds of cycles
			// if the upper halves of registers are in use.
			panic(fmt.Sprintf("asmgen: %s on vector register %v of %s: use V%s", mnemonic, op, fn.name, mnemonic))
		}
		if m, ok := op.(Mem); ok && m.field != "" {
			fn.f.fields = true
		}
	}
	line, ok := fn.f.arch.encode(mnemonic, ops)
	if !ok {
		line = text(mnemonic, ops)
	}
	fn.print(line)
}

// text returns an instruction in the syntax of Go's assembler.
func text(mnemonic string, ops []Operand) string {
	words := make([]string, len(ops))
	for i, op := range ops {
		words[i] = op.String()
	}
	return strings.TrimRight(mnemonic+" "+strings.Join(words, ", "), " ")
}

// Interleave prints the instructions of the bodies in turn, so that chains of dependent
// instructions overlap. A vector register used by one body is not given to another, even if freed.
// Bodies have no labels, and no body writes a mask or register of another. A body may call
// Interleave itself.
func (fn *Func) Interleave(bodies ...func()) {
	lines, taken := fn.lines, fn.taken
	texts := make([][]string, len(bodies))
	all := map[uint8]bool{}
	var aside []uint8
	for i, body := range bodies {
		fn.lines, fn.taken = &texts[i], map[uint8]bool{}
		body()
		maps.Copy(all, fn.taken)
		used := func(v uint8) bool { return fn.taken[v] }
		aside = append(aside, slices.DeleteFunc(slices.Clone(fn.vecs), func(v uint8) bool { return !used(v) })...)
		fn.vecs = slices.DeleteFunc(fn.vecs, used)
	}
	fn.vecs = append(aside, fn.vecs...)
	fn.lines, fn.taken = lines, taken
	if taken != nil {
		maps.Copy(taken, all)
	}
	for at := 0; slices.ContainsFunc(texts, func(t []string) bool { return at < len(t) }); at++ {
		for _, text := range texts {
			if at < len(text) {
				fn.print(text[at])
			}
		}
	}
}

// print adds a line of text, or passes it to Interleave.
func (fn *Func) print(line string) {
	if fn.lines != nil {
		*fn.lines = append(*fn.lines, line)
		return
	}
	fmt.Fprintf(&fn.f.text, "\t%s\n", line)
}

// Label returns a label that is unique in the function. Place prints it.
func (fn *Func) Label(name string) Label {
	fn.labels++
	return Label(fmt.Sprintf("%s%d", name, fn.labels))
}

// Place prints a label.
func (fn *Func) Place(l Label) {
	if fn.lines != nil {
		panic("asmgen: a body of Interleave cannot place a label")
	}
	fmt.Fprintf(&fn.f.text, "%s:\n", l)
}

// Align pads the code to a multiple of n bytes, for the head of a hot loop. Keep conditional jumps
// to the padding itself away: Go 1.26's assembler once did not terminate on one.
func (fn *Func) Align(n int) { fmt.Fprintf(&fn.f.text, "\tPCALIGN $%d\n", n) }

// CountDown repeats body counter times. counter must be at least 1, and body must not change it. It
// is 0 afterwards.
func (fn *Func) CountDown(counter Reg, body func()) {
	head := fn.Label("loop")
	fn.Align(64)
	fn.Place(head)
	body()
	fn.f.arch.jumpDown(fn, counter, head)
}

// Aside prints rarely executed code after the next Return. The code begins at label at and jumps to
// label back.
func (fn *Func) Aside(at, back Label, body func()) {
	fn.asides = append(fn.asides, func() {
		fn.Place(at)
		body()
		fn.I("JMP", back)
	})
}

// Return ends the function.
func (fn *Func) Return() {
	for _, mnemonic := range fn.f.arch.leave {
		fn.I(mnemonic)
	}
	fn.I("RET")
	for len(fn.asides) > 0 {
		aside := fn.asides[0]
		fn.asides = fn.asides[1:]
		aside()
	}
}
