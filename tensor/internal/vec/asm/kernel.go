package main

// A kernel is one assembly function over slices of equal length: whole vectors in a loop, the rest under masks.

import (
	"slices"

	"spmoe/tensor/asmgen"
)

// K1 selects the elements that are left at the end of a row. K2 to K4 are free for the bodies.
var tail = asmgen.K(1)

type kernel struct {
	*asmgen.Func
	file *file
	i    asmgen.Reg // elements done

	// The state of the body being printed.
	step   int  // elements before those of this copy of the body, from i
	masked bool // whether this copy works under the tail mask
	temps  []asmgen.Operand
}

// kernel begins the function of that name and tier.
func (f *file) kernel(name string, params ...[]asmgen.Param) *kernel {
	fn := f.Func(name+"AVX512", "", slices.Concat(params...)...)
	return &kernel{Func: fn, file: f, i: fn.GP()}
}

// rows declares slice parameters; each is three words on the stack.
func rows(names ...string) []asmgen.Param {
	var params []asmgen.Param
	for _, n := range names {
		params = append(params, asmgen.Arg(n+"_base", "unsafe.Pointer"), asmgen.Arg(n+"_len", "int"), asmgen.Arg(n+"_cap", "int"))
	}
	return params
}

func float32s(names ...string) []asmgen.Param {
	var params []asmgen.Param
	for _, n := range names {
		params = append(params, asmgen.Arg(n, "float32"))
	}
	return params
}

func result(typ string) []asmgen.Param { return []asmgen.Param{asmgen.Result("ret", typ)} }

// pointers loads the addresses of slices.
func (k *kernel) pointers(names ...string) []asmgen.Reg {
	var regs []asmgen.Reg
	for _, n := range names {
		regs = append(regs, k.Load(n+"_base"))
	}
	return regs
}

// float32 fills a register with copies of a float32 parameter.
func (k *kernel) float32(param string) asmgen.Vec {
	v := k.Z()
	k.I("VBROADCASTSS", k.Slot(param), v)
	return v
}

// word fills a register with copies of a 32-bit constant.
func (k *kernel) word(bits uint32) asmgen.Vec {
	v := k.Z()
	k.I("VBROADCASTSS", k.file.word(bits), v)
	return v
}

// each goes over the elements of the slices, as many as length says: body works on vectors of lanes elements and is
// printed unroll times, so that copy j can keep lane sums of its own. What is left after the last full round goes through
// the same copies under masks, so that element i is always seen by copy i/lanes mod unroll.
func (k *kernel) each(length string, lanes, unroll int, body func(j int)) {
	round := lanes * unroll
	n := k.Load(length)
	head, rest, done := k.Label("loop"), k.Label("rest"), k.Label("done")
	k.I("XORL", k.i, k.i)
	k.I("SUBQ", asmgen.Imm(round), n)
	k.I("JLT", rest)
	k.Align(64)
	k.Place(head)
	k.copies(lanes, unroll, body)
	k.I("ADDQ", asmgen.Imm(round), k.i)
	k.I("SUBQ", asmgen.Imm(round), n)
	k.I("JGE", head)
	k.Place(rest)
	k.I("ADDQ", asmgen.Imm(round), n)
	k.I("JEQ", done)
	left := k.Z()
	k.I("VPBROADCASTD", n, left)
	k.masked = true
	k.copies(lanes, unroll, func(j int) {
		const greater = 6
		k.I("VPCMPUD", asmgen.Imm(greater), k.file.indices.Plus(4*lanes*j), left, tail)
		body(j)
	})
	k.masked = false
	k.Place(done)
	k.Free(left, n)
}

func (k *kernel) copies(lanes, unroll int, body func(j int)) {
	for j := range unroll {
		k.step = lanes * j
		body(j)
		k.Free(k.temps...)
		k.temps = nil
	}
}

// temp takes a register until the end of this copy of the body.
func (k *kernel) temp() asmgen.Vec {
	v := k.Z()
	k.temps = append(k.temps, v)
	return v
}

// at is the place of the body's elements of size bytes in the slice at p.
func (k *kernel) at(p asmgen.Reg, size int) asmgen.Mem { return p.At(k.step*size).Index(k.i, size) }

// load reads 16 float32, zero where masked off.
func (k *kernel) load(p asmgen.Reg) asmgen.Vec {
	v := k.temp()
	k.zeroed("VMOVUPS", k.at(p, 4), v)
	return v
}

// store writes 16 float32.
func (k *kernel) store(v asmgen.Vec, p asmgen.Reg) { k.merged("VMOVUPS", v, k.at(p, 4)) }

// op is an instruction with a result in a fresh register.
func (k *kernel) op(mnemonic string, ops ...asmgen.Operand) asmgen.Vec {
	v := k.temp()
	k.I(mnemonic, append(ops, v)...)
	return v
}

// merged is an instruction that leaves the destination alone where the tail is masked off.
func (k *kernel) merged(mnemonic string, ops ...asmgen.Operand) {
	if k.masked {
		last := len(ops) - 1
		ops = append(append([]asmgen.Operand{}, ops[:last]...), tail, ops[last])
	}
	k.I(mnemonic, ops...)
}

// zeroed is an instruction that clears the destination where the tail is masked off.
func (k *kernel) zeroed(mnemonic string, ops ...asmgen.Operand) {
	if k.masked {
		mnemonic += ".Z"
	}
	k.merged(mnemonic, ops...)
}
