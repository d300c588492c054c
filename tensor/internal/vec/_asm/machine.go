package main

// What the kernels need of an instruction set. Each kernel is written once, as a generic function,
// and printed for AVX2, AVX-512 and NEON.

import "spmoe/tensor/asmgen"

// opcode is an arithmetic instruction on float32 lanes: its names on amd64 and arm64. The operands
// of x - y and x / y are in the order y, x.
type opcode struct{ amd64, arm64 string }

var (
	add    = opcode{"VADDPS", "VFADD"}
	sub    = opcode{"VSUBPS", "VFSUB"}
	mul    = opcode{"VMULPS", "VFMUL"}
	divide = opcode{"VDIVPS", "VFDIV"}
	root   = opcode{"VSQRTPS", "VFSQRT"}
)

// target is a file of kernels for one instruction set. V is its vector register. Its methods print
// kernels that have little in common.
type target[V any] interface {
	newKernel(name string, params ...[]asmgen.Param) machine[V]
	split()
	rotate()
	squares()
	sumSquares()
	maximum()
	streams() bool // has non-temporal stores
}

// machine is a kernel under construction. A loop works on bodies of some elements. A body holds its
// elements of a row in a pair of registers.
type machine[V any] interface {
	split()            // select split order: rows.go
	fewRegistersLeft() // let constants stay in memory
	row(name string, e elem) row
	weights(name string, e elem) row
	rounding(e elem)
	float32(param string) asmgen.Operand
	number(x float32) asmgen.Operand // in all lanes

	// each prints a loop over elements. length names the parameter with their number. Copy j of the
	// body processes the elements i for which i mod period belongs to j. eachInterleaved mixes the
	// instructions of copies that have long chains, if the instruction set has enough registers.
	each(length string, period int, body func(j int))
	eachInterleaved(length string, period int, body func(j int))
	eachHalf(body func(h int)) // of a pair

	load(r row) [2]V
	store(v [2]V, r row)
	stream(v [2]V, r row) // store with non-temporal stores
	fence()               // after these
	copyOf(v asmgen.Operand) V
	release(vs ...V)
	do(o opcode, ops ...asmgen.Operand) // the destination is last
	made(o opcode, ops ...asmgen.Operand) V

	// exponential returns a function that replaces x by e**x, or by e**-x. If nan is false, NaN may
	// become any number.
	exponential(negated, nan bool) func(x V)
	// blockSum returns a function that returns the sum of the blocks of a row.
	blockSum(x row, blocks, stride string) func() [2]V
	// ifSet prints code that runs the body if a bool parameter is true.
	ifSet(param string) func(body func())
	// prefetchNext returns a function that fetches the row after r in memory.
	prefetchNext(r row, length string) func()

	// wordSums returns a function that adds the words of a pair, as load returns it, to sum number
	// i of a parameter: see ../wordsum.go. With stored, these are the words that store would write.
	wordSums(param string) func(i int, e elem, v [2]V, stored bool)

	zeros(lanes int) []V         // sums in some number of lanes
	addElements(h int, x, sum V) // add the elements of half h that exist
	returnSum(sums []V)          // of all lanes
	Return()
}

// noPeriod is the period of loops in which all copies of the body are the same.
const noPeriod = 8

// list prints all kernels.
func list[V asmgen.Operand](t target[V]) {
	widen(t)
	round(t)
	addRows(t)
	divideRows(t)
	addScaled(t)
	scale(t)
	sumBlocks(t)
	t.split()
	mulScaled(t)
	normWeightGrad(t)
	normInputGrad(t)
	t.rotate()
	sigmoid(t)
	swiGLU(t)
	swiGLUBackward(t)
	expSum(t)
	softmaxBackward(t)
	dot(t)
	t.squares()
	t.sumSquares()
	t.maximum()
	words(t)
	adamW(t)
}

// rows loads the addresses of rows of one element type.
func rows[V any](k machine[V], e elem, names ...string) []row {
	var rs []row
	for _, n := range names {
		rs = append(rs, k.row(n, e))
	}
	return rs
}

// pairwise prints an instruction for both registers of pairs.
func pairwise[V asmgen.Operand](k machine[V], o opcode, x, y, dst [2]V) {
	for h := range 2 {
		k.do(o, x[h], y[h], dst[h])
	}
}

// scaled multiplies a pair by a scalar.
func scaled[V asmgen.Operand](k machine[V], a asmgen.Operand, v [2]V) {
	for _, x := range v {
		k.do(mul, a, x, x)
	}
}

// splitIf selects split order for kernels that have only BF16 rows.
func splitIf[V any](k machine[V], e elem) {
	if e == bf16 {
		k.split()
	}
}

// vectors declares slice parameters with elements of a type.
func vectors(e elem, names ...string) []asmgen.Param {
	if e == bf16 {
		return args("[]uint16", names)
	}
	return args("[]float32", names)
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

func result(typ string) []asmgen.Param { return []asmgen.Param{asmgen.Result("sum", typ)} }
