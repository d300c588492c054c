package main

// The common part of functions that pack a run along k of adjacent rows of b into a column panel.
// At the same time they prefetch the same number of bytes for a later call. Prefetches go in memory
// order.

import "spmoe/tensor/asmgen"

type acrossPanel struct {
	fn                  *asmgen.Func
	t, dst, src, stride asmgen.Reg
	fetch, lines        asmgen.Reg // the next prefetch, and the lines left in its row
}

func newAcrossPanel(fn *asmgen.Func) acrossPanel {
	p := acrossPanel{fn: fn, t: fn.Load("p")}
	p.dst, p.src, p.stride = p.field("columnPanel_dst"), p.field("columnPanel_src"), p.field("columnPanel_stride")
	p.fetch, p.lines = p.field("columnPanel_ahead"), p.field("columnPanel_linesLeft")
	fn.I("ADDQ", p.src, p.fetch)
	return p
}

// field loads a field.
func (p *acrossPanel) field(at asmgen.Field) asmgen.Reg {
	r := p.fn.GP()
	p.fn.I("MOVQ", p.t.Field(at), r)
	return r
}

// fetchLine prefetches one line for a later call, row by row in memory order.
func (p *acrossPanel) fetchLine() {
	fn, same := p.fn, p.fn.Label("sameRow")
	fn.I("PREFETCHT1", p.fetch.At(0))
	fn.I("ADDQ", asmgen.Imm(64), p.fetch)
	fn.I("DECQ", p.lines)
	fn.I("JNZ", same)
	fn.I("ADDQ", p.t.Field("columnPanel_jump"), p.fetch)
	fn.I("MOVQ", p.t.Field("columnPanel_lines"), p.lines)
	fn.Place(same)
}

// finish stores the place where prefetching continues.
func (p *acrossPanel) finish() {
	p.fn.I("SUBQ", p.t.Field("columnPanel_src"), p.fetch)
	p.fn.I("MOVQ", p.fetch, p.t.Field("columnPanel_ahead"))
	p.fn.I("MOVQ", p.lines, p.t.Field("columnPanel_linesLeft"))
	p.fn.Return()
}
