package main

// A kernel is one assembly function over slices of equal length: whole vectors in a loop, the rest under masks.

import (
	"slices"

	"spmoe/tensor/asmgen"
)

// tail selects the elements that are left at the end of a row, upper those of its second half. K2 and K3 are free for the
// bodies, K5 to K7 for what stays.
var tail, upper = asmgen.K(1), asmgen.K(4)

// halves are the masks of the two halves.
var halves = [2]asmgen.Mask{tail, upper}

type kernel struct {
	*asmgen.Func
	file *file
	i    asmgen.Reg // elements done
	rowConstants

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

func float32s(names ...string) []asmgen.Param { return args("float32", names) }

func ints(names ...string) []asmgen.Param { return args("int", names) }

func args(typ string, names []string) []asmgen.Param {
	var params []asmgen.Param
	for _, n := range names {
		params = append(params, asmgen.Arg(n, typ))
	}
	return params
}

func result(typ string) []asmgen.Param { return []asmgen.Param{asmgen.Result("ret", typ)} }

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

// lanes is the number of elements that a body works on, unless it says otherwise: a pair of registers.
const lanes = 32

// each goes over the elements of the slices, as many as length says: body works on n elements (8, 16 or 32) and is printed
// unroll times, so that copy j can keep lane sums of its own. What is left after the last full round goes through the same
// copies under masks, so that element i is always seen by copy i/n mod unroll.
func (k *kernel) each(length string, n, unroll int, body func(j int)) {
	round := n * unroll
	left := k.Load(length)
	head, rest, done := k.Label("loop"), k.Label("rest"), k.Label("done")
	k.I("XORL", k.i, k.i)
	k.I("SUBQ", asmgen.Imm(round), left)
	k.I("JLT", rest)
	k.Align(64)
	k.Place(head)
	k.copies(n, unroll, body)
	k.I("ADDQ", asmgen.Imm(round), k.i)
	k.I("SUBQ", asmgen.Imm(round), left)
	k.I("JGE", head)
	k.Place(rest)
	k.I("ADDQ", asmgen.Imm(round), left)
	k.I("JEQ", done)
	count := k.Z()
	k.I("VPBROADCASTW", left, count)
	k.masked = true
	k.copies(n, unroll, func(j int) {
		const greater = 6
		k.I("VPCMPUW", asmgen.Imm(greater), k.file.indices.Plus(2*n*j), count, tail)
		k.I("KSHIFTRD", asmgen.Imm(n/2), tail, upper)
		body(j)
	})
	k.masked = false
	k.Place(done)
	k.Free(count, left)
}

func (k *kernel) copies(n, unroll int, body func(j int)) {
	for j := range unroll {
		k.step = n * j
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

// release gives registers back before that.
func (k *kernel) release(vs ...asmgen.Vec) {
	k.temps = slices.DeleteFunc(k.temps, func(t asmgen.Operand) bool { return slices.Contains(vs, t.(asmgen.Vec)) })
	for _, v := range vs {
		k.Free(v)
	}
}

// op is an instruction with a result in a fresh register.
func (k *kernel) op(mnemonic string, ops ...asmgen.Operand) asmgen.Vec {
	v := k.temp()
	k.I(mnemonic, append(ops, v)...)
	return v
}

// copyOf is v in a fresh register.
func (k *kernel) copyOf(v asmgen.Vec) asmgen.Vec { return k.op("VMOVAPS", v) }

// merged is an instruction that leaves the destination alone where the tail is masked off.
func (k *kernel) merged(mask asmgen.Mask, mnemonic string, ops ...asmgen.Operand) {
	if k.masked {
		last := len(ops) - 1
		ops = append(append([]asmgen.Operand{}, ops[:last]...), mask, ops[last])
	}
	k.I(mnemonic, ops...)
}

// zeroed is an instruction that clears the destination where the tail is masked off.
func (k *kernel) zeroed(mask asmgen.Mask, mnemonic string, ops ...asmgen.Operand) {
	if k.masked {
		mnemonic += ".Z"
	}
	k.merged(mask, mnemonic, ops...)
}

// pair is the two registers that hold a body's 32 elements of a row as float32.
type pair [2]asmgen.Vec

// both prints body for each register of the pairs that it works on. Of the registers that it takes, the results stay.
func (k *kernel) both(body func(h int) []asmgen.Vec) []pair {
	var results []pair
	for h := range 2 {
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
	return results
}
