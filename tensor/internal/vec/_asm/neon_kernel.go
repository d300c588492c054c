package main

// A NEON kernel is one assembly function over slices of equal length. It loops over whole bodies of
// elements. The rest goes through the same code, with loads that fill up with zeros and stores of
// the elements that exist.

import (
	"fmt"
	"math"
	"slices"

	"spmoe/tensor/asmgen"
)

// neonFile is the file of the NEON kernels, with their constants.
type neonFile struct {
	*output
	powers asmgen.Mem // 2**(i/16); see ../exp.go
	spread asmgen.Mem // indices that copy the lowest byte of each 32-bit lane over the lane
	ones   asmgen.Mem // 32 bytes of ones
}

func newNEONFile() *neonFile {
	f := &neonFile{output: newOutput("NEON", asmgen.NewFileARM64, "arm64")}
	f.powers = f.Data32("powers", words32(func(i uint32) uint32 { return math.Float32bits(float32(math.Exp2(float64(i) / 16))) })...)
	f.spread = f.Data32("spread", 0x00000000, 0x04040404, 0x08080808, 0x0c0c0c0c)
	f.ones = f.Data32("ones", slices.Repeat([]uint32{math.MaxUint32}, 8)...)
	return f
}

// neonKernel is a function under construction.
type neonKernel struct {
	*asmgen.Func
	file        *neonFile
	bases       []row         // all rows, which the loop advances
	sums        []asmgen.Neon // of all copies
	halvesApart bool          // sums of a copy are not adjacent: see sumOf
	isSplit     bool          // pairs hold even and odd elements; otherwise the first and the second half
	hasFP32     bool          // NaNs may have bits that rounding would carry into the exponent
	odd         asmgen.Neon
	half        asmgen.Neon
	quiet       asmgen.Neon

	// The state of the body being printed.
	step  int        // offset of its elements from the rows' bases
	part  bool       // it has fewer elements than a body
	left  asmgen.Reg // that number
	sizes []partSize
	temps []asmgen.Operand
}

// neonPair is two registers with a body's 8 elements of a row, as float32.
type neonPair = [2]asmgen.Neon

// written is an operand in Go's syntax that asmgen has no type for.
type written string

func (w written) String() string { return string(w) }

// element returns element 0 of a register, of a type: B, H, S or D.
func element(v asmgen.Neon, typ string) asmgen.Operand {
	return written(fmt.Sprintf("V%s.%s[0]", v.String()[1:], typ))
}

// listOf returns a list of registers, as bytes.
func listOf(vs ...asmgen.Neon) asmgen.Operand {
	text := ""
	for _, v := range vs {
		text += ", " + v.B16().String()
	}
	return written("[" + text[2:] + "]")
}

func (f *neonFile) streams() bool { return false }

func (f *neonFile) newKernel(name string, params ...[]asmgen.Param) machine[asmgen.Neon] {
	return f.start(name, params...)
}

func (f *neonFile) start(name string, params ...[]asmgen.Param) *neonKernel {
	return &neonKernel{Func: f.declare(name, slices.Concat(params...)), file: f}
}

// split selects split order for this kernel, which has only BF16 rows and weights.
func (k *neonKernel) split() {
	k.isSplit = true
	k.odd = k.word(0xffff0000)
}

// row loads the address of a row.
func (k *neonKernel) row(name string, e elem) row {
	k.hasFP32 = k.hasFP32 || e == fp32
	return k.add(row{base: k.Load(name + "_base"), elem: e})
}

func (k *neonKernel) add(r row) row {
	k.bases = append(k.bases, r)
	return r
}

// weights loads the address of a row of FP32 weights. If the rows they go with are BF16, they are
// in the order of Split.
func (k *neonKernel) weights(name string, e elem) row {
	if e == fp32 {
		return k.row(name, fp32)
	}
	return k.add(row{base: k.Load(name + "_base"), elem: fp32, isSplit: true})
}

// rounding loads the constants for storing BF16 rows. Call it after all calls of row.
func (k *neonKernel) rounding(e elem) {
	if e == fp32 {
		return
	}
	k.half = k.word(0x7fff)
	if k.hasFP32 {
		k.quiet = k.word(1 << 22)
	}
}

// word returns a register with a 32-bit constant in all lanes.
func (k *neonKernel) word(bits uint32) asmgen.Neon {
	r := k.GP()
	k.I("MOVD", asmgen.Imm(bits), r)
	v := k.broadcast(r)
	k.Free(r)
	return v
}

// float32 returns a register with a parameter in all lanes.
func (k *neonKernel) float32(param string) asmgen.Operand {
	r := k.GP()
	k.I("MOVWU", k.Slot(param), r)
	v := k.broadcast(r)
	k.Free(r)
	return v
}

func (k *neonKernel) broadcast(r asmgen.Reg) asmgen.Neon {
	v := k.V()
	k.I("VDUP", r, v.S4())
	return v
}

// constant returns registers with consecutive numbers that hold data of the file.
func (k *neonKernel) constant(m asmgen.Mem, n int) []asmgen.Neon {
	r, vs := k.address(m), k.Vs(n)
	for i, v := range vs {
		k.I("FMOVQ", r.At(16*i), v)
	}
	k.Free(r)
	return vs
}

// number returns a register with a float32 constant in all lanes.
func (k *neonKernel) number(x float32) asmgen.Operand { return k.word(math.Float32bits(x)) }

// zeros takes registers with some number of FP32 lanes and sets them to zero.
func (k *neonKernel) zeros(lanes int) []asmgen.Neon {
	vs := k.Vs(lanes / 4)
	k.sums = vs
	for _, v := range vs {
		k.clear(v)
	}
	return vs
}

func (k *neonKernel) clear(v asmgen.Neon) { k.I("VEOR", v.B16(), v.B16(), v.B16()) }

// temp takes a register until the end of the body.
func (k *neonKernel) temp() asmgen.Neon {
	v := k.V()
	k.temps = append(k.temps, v)
	return v
}

// release frees registers before that.
func (k *neonKernel) release(vs ...asmgen.Neon) {
	for _, v := range vs {
		k.temps = slices.DeleteFunc(k.temps, func(t asmgen.Operand) bool { return t == asmgen.Operand(v) })
		k.Free(v)
	}
}

// lanes prints an instruction on FP32 lanes or 32-bit integers. The destination is last.
func (k *neonKernel) lanes(mnemonic string, vs ...asmgen.Operand) {
	ops := make([]asmgen.Operand, len(vs))
	for i, v := range vs {
		ops[i] = v.(asmgen.Neon).S4()
	}
	k.I(mnemonic, ops...)
}

// op is lanes with a new register as the destination.
func (k *neonKernel) op(mnemonic string, vs ...asmgen.Operand) asmgen.Neon {
	d := k.temp()
	k.lanes(mnemonic, append(vs, d)...)
	return d
}

func (k *neonKernel) do(o opcode, ops ...asmgen.Operand) { k.lanes(o.arm64, ops...) }

func (k *neonKernel) made(o opcode, ops ...asmgen.Operand) asmgen.Neon { return k.op(o.arm64, ops...) }

// bits prints an instruction on whole registers.
func (k *neonKernel) bits(mnemonic string, vs ...asmgen.Neon) {
	var ops []asmgen.Operand
	for _, v := range vs {
		ops = append(ops, v.B16())
	}
	k.I(mnemonic, ops...)
}

// shift prints a shift of 32-bit lanes.
func (k *neonKernel) shift(mnemonic string, by int, v, d asmgen.Neon) {
	k.I(mnemonic, asmgen.Imm(by), v.S4(), d.S4())
}

func (k *neonKernel) copyOf(v asmgen.Operand) asmgen.Neon {
	d := k.temp()
	k.bits("VMOV", v.(asmgen.Neon), d)
	return d
}

// eachHalf prints body for both registers of pairs, and frees its temporary registers.
func (k *neonKernel) eachHalf(body func(h int)) {
	for h := range 2 {
		outer := k.temps
		k.temps = nil
		body(h)
		k.Free(k.temps...)
		k.temps = outer
	}
}

// each prints a loop of bodies of 8 elements.
func (k *neonKernel) each(length string, period int, body func(j int)) {
	k.loop(length, 8, period/8, body)
}

func (k *neonKernel) eachInterleaved(length string, _ int, body func(j int)) {
	k.each(length, noPeriod, body)
}

// loop prints a loop over the elements of the rows. length names the parameter with their number.
// body works on n elements, 8 or 4. It is printed unroll times, so that copy j can have its own
// lanes of a sum. The tail after the last full round goes through the same copies.
func (k *neonKernel) loop(length string, n, unroll int, body func(j int)) {
	k.left = k.Load(length)
	round := n * unroll
	head, rest, done := k.Label("loop"), k.Label("rest"), k.Label("done")
	k.I("SUBS", asmgen.Imm(round), k.left)
	k.I("BLT", rest)
	k.Align(64)
	k.Place(head)
	for j := range unroll {
		k.printBody(n, j, body)
	}
	for _, r := range k.bases {
		k.I("ADD", asmgen.Imm(int(r.elem)*round), r.base)
	}
	k.I("SUBS", asmgen.Imm(round), k.left)
	k.I("BGE", head)
	k.Place(rest)
	k.I("ADDS", asmgen.Imm(round), k.left)
	k.I("BEQ", done)
	k.tail(n, unroll, body, done)
	k.Place(done)
	k.Free(k.left)
}

// tail prints the body for fewer elements than a round. Only copy 0 is printed, once for whole
// bodies and once for a part. Before each body, the sums of its copy move to where copy 0 has them.
// In the end all are where they were.
func (k *neonKernel) tail(n, unroll int, body func(j int), done asmgen.Label) {
	turn, finish := k.turn(unroll)
	if unroll > 1 {
		head, part := k.Label("tail"), k.Label("part")
		k.Place(head)
		k.I("CMP", asmgen.Imm(n), k.left)
		k.I("BLT", part)
		k.printBody(n, 0, body)
		for _, r := range k.bases {
			bytes := int(r.elem)
			if r.isSplit {
				bytes = 2
			}
			k.I("ADD", asmgen.Imm(bytes*n), r.base)
		}
		turn()
		k.I("SUBS", asmgen.Imm(n), k.left)
		k.I("BNE", head)
		finish(done)
		k.Place(part)
	}
	k.part = true
	k.printBody(n, 0, body)
	k.part = false
	turn()
	finish(done)
}

// turn returns a function that moves the sums of each copy to where the copy before it has them,
// and one that goes on with that until all are back, and then jumps.
func (k *neonKernel) turn(unroll int) (turn func(), finish func(done asmgen.Label)) {
	if unroll == 1 || len(k.sums) == 0 {
		return func() {}, func(done asmgen.Label) { k.I("JMP", done) }
	}
	left := k.GP()
	k.I("MOVD", asmgen.Imm(unroll), left)
	per := len(k.sums) / unroll
	turn = func() {
		spare := k.V()
		for i := range per {
			at := func(j int) asmgen.Neon { return k.sums[k.sumOf(j, i, per)] }
			k.bits("VMOV", at(0), spare)
			for j := range unroll - 1 {
				k.bits("VMOV", at(j+1), at(j))
			}
			k.bits("VMOV", spare, at(unroll-1))
		}
		k.Free(spare)
		k.I("SUB", asmgen.Imm(1), left)
	}
	return turn, func(done asmgen.Label) {
		again := k.Label("turn")
		k.Place(again)
		k.I("CBZ", left, done)
		turn()
		k.I("JMP", again)
	}
}

// sumOf returns the number of the ith of per sums of copy j.
func (k *neonKernel) sumOf(j, i, per int) int {
	if k.halvesApart { // of every 32 elements, the lanes of the odd ones come last
		return j/4*8 + j%4 + 4*i
	}
	return per*j + i
}

// printBody prints copy j of the body.
func (k *neonKernel) printBody(n, j int, body func(j int)) {
	k.step, k.sizes = n*j, nil
	body(j)
	for _, s := range k.sizes {
		k.Free(s.first, s.second)
	}
	k.Free(k.temps...)
	k.temps = nil
}

func (k *neonKernel) fewRegistersLeft() {}

func (k *neonKernel) ifSet(param string) func(body func()) {
	set := k.GP()
	k.I("MOVBU", k.Slot(param), set)
	return func(body func()) {
		unset := k.Label("unset")
		k.I("CBZ", set, unset)
		body()
		k.Place(unset)
	}
}
