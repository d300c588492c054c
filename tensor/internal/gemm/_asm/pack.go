package main

// The common part of the packing functions for rows that are adjacent in memory.

import "spmoe/tensor/asmgen"

// acrossArgs begins such a function and loads its arguments. what says what it stores, and which
// names the rows.
func acrossArgs(f *asmgen.File, name, what, which string, more ...asmgen.Param) (fn *asmgen.Func, dst, src, stride, k, step asmgen.Reg) {
	params := []asmgen.Param{asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("stride", "int"), asmgen.Arg("k", "int"), asmgen.Arg("step", "int")}
	fn = f.Func(name, name+" packs rows that are adjacent in memory; along k they are stride bytes apart.\n"+
		"It stores "+what+", step bytes apart"+which+".", append(params, more...)...)
	return fn, fn.Load("dst"), fn.Load("src"), fn.Load("stride"), fn.Load("k"), fn.Load("step")
}

// pairs runs body for every two steps of k, then for a single last one.
func pairs(fn *asmgen.Func, k asmgen.Reg, body func(single bool)) {
	last, done, n := fn.Label("last"), fn.Label("done"), fn.GP()
	fn.I("MOVQ", k, n)
	fn.I("SHRQ", asmgen.Imm(1), n)
	fn.I("JZ", last)
	fn.CountDown(n, func() { body(false) })
	fn.Place(last)
	fn.I("TESTQ", asmgen.Imm(1), k)
	fn.I("JZ", done)
	body(true)
	fn.Place(done)
}
