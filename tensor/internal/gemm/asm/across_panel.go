package main

// What functions have in common that make a column panel of rows of b that are neighbours in memory, a run along k, and meanwhile fetch as
// much as a later call will read, in the order of memory.

import "spmoe/tensor/asmgen"

// The fields of Go's struct columnPanel, in its order.
const (
	columnPanelDst = 8 * iota
	columnPanelSrc
	columnPanelScales
	columnPanelLookup
	columnPanelStride
	columnPanelScaleStride
	columnPanelK
	columnPanelAhead
	columnPanelLines
	columnPanelLinesLeft
	columnPanelJump
	columnPanelMin
	columnPanelMax = columnPanelMin + 64
	columnPanelBad = columnPanelMax + 64
)

type acrossPanel struct {
	fn                  *asmgen.Func
	t, dst, src, stride asmgen.Reg
	fetch, lines        asmgen.Reg // what is fetched next, and how many lines of its row are left
}

func newAcrossPanel(fn *asmgen.Func) acrossPanel {
	p := acrossPanel{fn: fn, t: fn.Load("p")}
	p.dst, p.src, p.stride = p.field(columnPanelDst), p.field(columnPanelSrc), p.field(columnPanelStride)
	p.fetch, p.lines = p.field(columnPanelAhead), p.field(columnPanelLinesLeft)
	fn.I("ADDQ", p.src, p.fetch)
	return p
}

// field loads a field.
func (p *acrossPanel) field(at int) asmgen.Reg {
	r := p.fn.GP()
	p.fn.I("MOVQ", p.t.At(at), r)
	return r
}

// fetchLine fetches a line of what a later call will read, row after row of memory.
func (p *acrossPanel) fetchLine() {
	fn, same := p.fn, p.fn.Label("sameRow")
	fn.I("PREFETCHT1", p.fetch.At(0))
	fn.I("ADDQ", asmgen.Imm(64), p.fetch)
	fn.I("DECQ", p.lines)
	fn.I("JNZ", same)
	fn.I("ADDQ", p.t.At(columnPanelJump), p.fetch)
	fn.I("MOVQ", p.t.At(columnPanelLines), p.lines)
	fn.Place(same)
}

// finish leaves where to fetch on.
func (p *acrossPanel) finish() {
	p.fn.I("SUBQ", p.t.At(columnPanelSrc), p.fetch)
	p.fn.I("MOVQ", p.fetch, p.t.At(columnPanelAhead))
	p.fn.I("MOVQ", p.lines, p.t.At(columnPanelLinesLeft))
	p.fn.Return()
}
