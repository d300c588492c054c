package main

// A kernel is one assembly function over slices of equal length. It loops over whole vectors and
// handles the rest under masks.

import (
	"math"
	"slices"

	"spmoe/tensor/asmgen"
)

type kernel struct {
	*asmgen.Func
	file *file
	avx2 bool
	i    asmgen.Reg // elements processed
	rowConstants
	fewRegisters bool // no registers are left for the constants of rows

	// The state of the body being printed.
	copy   int        // its number
	step   int        // offset of this copy's elements from i
	masked bool       // this copy works under the tail mask
	count  asmgen.Reg // the number of elements left for it, in AVX2
	temps  []asmgen.Operand
}

// newKernel begins the function of the given name for the file's tier.
func (f *file) newKernel(name string, params ...[]asmgen.Param) machine[asmgen.Vec] {
	return f.start(name, params...)
}

func (f *file) start(name string, params ...[]asmgen.Param) *kernel {
	fn := f.declare(name, slices.Concat(params...))
	return &kernel{Func: fn, file: f, avx2: f.avx2, i: fn.GP()}
}

// vec takes a register.
func (k *kernel) vec() asmgen.Vec {
	if k.avx2 {
		return k.Y()
	}
	return k.Z()
}

// width returns the number of float32 in a register.
func (k *kernel) width() int {
	if k.avx2 {
		return 8
	}
	return 16
}

// broadcastMem is a float32 in memory that an instruction needs in every lane. AVX2 has few
// registers, so each use there broadcasts it into one. If it is a constant of the file, the use can
// read its copies from memory instead. AVX-512 can broadcast from memory in any instruction.
// Instructions read memory only as their first operand or after an immediate.
type broadcastMem struct{ asmgen.Operand }

// I prints one instruction.
func (k *kernel) I(mnemonic string, ops ...asmgen.Operand) {
	ops = slices.Clone(ops)
	var loaded []asmgen.Operand
	for i, op := range ops {
		switch r, ok := op.(broadcastMem); {
		case !ok:
		case !k.avx2:
			ops[i] = r.Operand
			mnemonic += ".BCST"
		case mnemonic == "VMOVAPS":
			ops[i], mnemonic = r.Operand, "VBROADCASTSS"
		case i == 0 && isConstant(r):
			ops[i] = r.Operand
		default:
			v := k.vec()
			k.Func.I("VBROADCASTSS", r.Operand, v)
			ops[i], loaded = v, append(loaded, v)
		}
	}
	k.Func.I(mnemonic, ops...)
	k.Free(loaded...)
}

// isConstant says whether memory has copies of r.
func isConstant(r broadcastMem) bool {
	_, is := r.Operand.(asmgen.Mem)
	return is
}

// float32 returns a float32 parameter in all lanes.
func (k *kernel) float32(param string) asmgen.Operand { return k.broadcast(k.Slot(param)) }

// number returns a float32 constant in all lanes.
func (k *kernel) number(x float32) asmgen.Operand { return k.word(math.Float32bits(x)) }

// word returns a 32-bit constant in all lanes.
func (k *kernel) word(bits uint32) asmgen.Operand { return k.broadcast(k.file.word(bits)) }

func (k *kernel) broadcast(of asmgen.Operand) asmgen.Operand {
	if k.avx2 {
		return broadcastMem{of}
	}
	v := k.vec()
	k.I("VBROADCASTSS", of, v)
	return v
}

// constant is word, except that it uses no register in kernels that are short of them.
func (k *kernel) constant(bits uint32) asmgen.Operand {
	if k.fewRegisters {
		return broadcastMem{k.file.word(bits)}
	}
	return k.word(bits)
}

// temp takes a register until the end of this copy of the body.
func (k *kernel) temp() asmgen.Vec {
	v := k.vec()
	k.temps = append(k.temps, v)
	return v
}

// release frees registers before that.
func (k *kernel) release(vs ...asmgen.Vec) {
	k.temps = slices.DeleteFunc(k.temps, func(t asmgen.Operand) bool { return slices.Contains(vs, t.(asmgen.Vec)) })
	for _, v := range vs {
		k.Free(v)
	}
}

// op prints an instruction and returns its result in a new register.
func (k *kernel) op(mnemonic string, ops ...asmgen.Operand) asmgen.Vec {
	v := k.temp()
	k.I(mnemonic, append(ops, v)...)
	return v
}

func (k *kernel) do(o opcode, ops ...asmgen.Operand) { k.I(o.amd64, ops...) }

func (k *kernel) made(o opcode, ops ...asmgen.Operand) asmgen.Vec { return k.op(o.amd64, ops...) }

// copyOf returns a copy of v in a new register.
func (k *kernel) copyOf(v asmgen.Operand) asmgen.Vec { return k.op("VMOVAPS", v) }

// merged prints an instruction that leaves masked elements of the destination unchanged.
func (k *kernel) merged(mask asmgen.Mask, mnemonic string, ops ...asmgen.Operand) {
	if k.masked && k.avx2 {
		k.blended(mask, mnemonic, ops...)
		return
	}
	if k.masked {
		last := len(ops) - 1
		ops = append(append([]asmgen.Operand{}, ops[:last]...), mask, ops[last])
	}
	k.I(mnemonic, ops...)
}

// zeroed prints an instruction that clears masked elements of the destination.
func (k *kernel) zeroed(mask asmgen.Mask, mnemonic string, ops ...asmgen.Operand) {
	if k.masked {
		mnemonic += ".Z"
	}
	k.merged(mask, mnemonic, ops...)
}

// pair is two registers with a body's elements of a row, as float32.
type pair = [2]asmgen.Vec

func (k *kernel) eachHalf(body func(h int)) {
	k.halves(func(h int) []asmgen.Vec {
		body(h)
		return nil
	})
}

// halves prints body for each register of its pairs. AVX-512 has enough registers to interleave the
// two. The registers that body returns stay allocated. Its other registers are freed.
func (k *kernel) halves(body func(h int) []asmgen.Vec) []pair {
	var results []pair
	half := func(h int) {
		outer := k.temps
		k.temps = nil
		kept := body(h)
		for _, t := range k.temps {
			if !slices.Contains(kept, t.(asmgen.Vec)) {
				k.Free(t)
			}
		}
		k.temps = outer
		for i, v := range kept {
			if h == 0 {
				results = append(results, pair{})
			}
			results[i][h] = v
			k.temps = append(k.temps, v)
		}
	}
	if k.avx2 {
		half(0)
		half(1)
	} else {
		k.Interleave(func() { half(0) }, func() { half(1) })
	}
	return results
}

func (k *kernel) fewRegistersLeft() { k.fewRegisters = true }

func (k *kernel) ifSet(param string) func(body func()) {
	set := k.GP()
	k.I("MOVBQZX", k.Slot(param), set)
	return func(body func()) {
		unset := k.Label("unset")
		k.I("TESTQ", set, set)
		k.I("JEQ", unset)
		body()
		k.Place(unset)
	}
}
