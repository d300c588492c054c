package main

// Loads and stores of rows by NEON kernels, whole and in parts.

import "spmoe/tensor/asmgen"

// after returns the memory of a row from some element after its base on.
func (r row) after(step int) asmgen.Mem { return r.base.At(step * int(r.elem)) }

// load reads a pair. Elements beyond the end of the row are zero.
func (k *neonKernel) load(r row) neonPair {
	if r.isSplit {
		// Of 32 weights, those of even index come first. Zeros pad the last 32.
		v := neonPair{k.temp(), k.temp()}
		k.I("FMOVQ", r.base.At(2*k.step), v[0])
		k.I("FMOVQ", r.base.At(2*k.step+64), v[1])
		return v
	}
	return k.loadAt(r.after(k.step), r.elem)
}

// loadAt reads a pair from memory.
func (k *neonKernel) loadAt(m asmgen.Mem, e elem) neonPair {
	if e == bf16 {
		return k.widened(k.loadNarrow(m))
	}
	v := neonPair{k.temp(), k.temp()}
	if k.part {
		k.loadParts(m, k.partSize(int(e)), v)
	} else {
		k.I("FLDPQ", m, asmgen.Pair{v[0], v[1]})
	}
	if k.isSplit {
		even, odd := k.op("VUZP1", v[1], v[0]), k.op("VUZP2", v[1], v[0])
		k.release(v[0], v[1])
		return neonPair{even, odd}
	}
	return v
}

// loadNarrow reads 8 bfloat16 into one register.
func (k *neonKernel) loadNarrow(m asmgen.Mem) asmgen.Neon {
	v := k.temp()
	if k.part {
		k.loadPart(m, k.partSize(int(bf16)).first, v)
	} else {
		k.I("FMOVQ", m, v)
	}
	return v
}

// widened returns a register of bfloat16 as a pair.
func (k *neonKernel) widened(v asmgen.Neon) neonPair {
	first := k.temp()
	if k.isSplit {
		k.shift("VSHL", 16, v, first)
		k.bits("VAND", k.odd, v, v)
		return neonPair{first, v}
	}
	k.I("VSHLL", asmgen.Imm(16), v.H4(), first.S4())
	k.I("VSHLL2", asmgen.Imm(16), v.H8(), v.S4())
	return neonPair{first, v}
}

// store writes a pair, rounded to the row's type. It overwrites the registers.
func (k *neonKernel) store(v neonPair, r row) {
	m := r.after(k.step)
	switch {
	case r.elem == bf16:
		k.storeNarrow(k.narrow(v), m)
	case k.part:
		k.storeParts(v, m, k.partSize(int(r.elem)))
	default:
		k.I("FSTPQ", asmgen.Pair{v[0], v[1]}, m)
	}
}

// stream does not bypass the caches.
func (k *neonKernel) stream(v neonPair, r row) { k.store(v, r) }

func (k *neonKernel) fence() {}

// prefetchNext leaves this to the CPU.
func (k *neonKernel) prefetchNext(row, string) func() { return func() {} }

// storeNarrow writes 8 bfloat16.
func (k *neonKernel) storeNarrow(v asmgen.Neon, m asmgen.Mem) {
	if k.part {
		k.storePart(v, m, k.partSize(int(bf16)).first)
	} else {
		k.I("FMOVQ", v, m)
	}
}

// narrow rounds a pair to one register of bfloat16.
func (k *neonKernel) narrow(v neonPair) asmgen.Neon {
	first, second := k.rounded(v[0]), k.rounded(v[1])
	if k.isSplit {
		k.shift("VSRI", 16, first, second)
	} else {
		k.I("VUZP2", second.H8(), first.H8(), second.H8())
	}
	k.release(first)
	return second
}

// rounded returns x, rounded to bfloat16 in the upper halves of the lanes. The lower halves are
// arbitrary.
func (k *neonKernel) rounded(x asmgen.Neon) asmgen.Neon {
	lowest, sum := k.temp(), k.op("VADD", k.half, x)
	k.shift("VSHL", 15, x, lowest)
	k.shift("VUSRA", 31, lowest, sum)
	k.release(lowest)
	if k.hasFP32 {
		quiet, isNumber := k.temp(), k.op("VFCMEQ", x, x)
		k.bits("VORR", k.quiet, x, quiet)
		k.bits("VBIF", isNumber, quiet, sum)
		k.release(quiet, isNumber)
	}
	return sum
}

// partSize is the numbers of bytes of a part in two vector registers, for elements of a size.
type partSize struct {
	elem          int
	first, second asmgen.Reg
}

// partSize returns the bytes that are left, for elements of the given size.
func (k *neonKernel) partSize(elem int) partSize {
	for _, s := range k.sizes {
		if s.elem == elem {
			return s
		}
	}
	first, second, fits := k.GP(), k.GP(), k.Label("fits")
	k.I("MOVD", asmgen.Imm(elem), second)
	k.I("MUL", k.left, second, first)
	k.I("MOVD", asmgen.Imm(0), second)
	k.I("CMP", asmgen.Imm(16), first)
	k.I("BLE", fits)
	k.I("SUB", asmgen.Imm(16), first, second)
	k.I("MOVD", asmgen.Imm(16), first)
	k.Place(fits)
	s := partSize{elem, first, second}
	k.sizes = append(k.sizes, s)
	return s
}

// loadParts reads the bytes of a part into two registers.
func (k *neonKernel) loadParts(m asmgen.Mem, s partSize, v neonPair) {
	k.loadPart(m, s.first, v[0])
	k.loadPart(m.Plus(16), s.second, v[1])
}

// loadPart reads bytes, an even number up to 16, and fills up with zeros. It begins with the last
// bytes and pushes them up for those before.
func (k *neonKernel) loadPart(m asmgen.Mem, bytes asmgen.Reg, v asmgen.Neon) {
	zero, at, piece := k.temp(), k.address(m), k.GP()
	not16, done := k.Label("not16"), k.Label("loaded")
	k.clear(zero)
	k.clear(v)
	k.I("TBZ", asmgen.Imm(4), bytes, not16)
	k.I("FMOVQ", at.At(0), v)
	k.I("JMP", done)
	k.Place(not16)
	for _, p := range []struct {
		bit, before int
		typ         string
	}{{1, 12, "H"}, {2, 8, "S"}, {3, 0, "D"}} {
		none := k.Label("none")
		k.I("TBZ", asmgen.Imm(p.bit), bytes, none)
		if p.bit > 1 {
			k.I("VEXT", asmgen.Imm(16-1<<p.bit), v.B16(), zero.B16(), v.B16())
		}
		from := at
		if p.before > 0 {
			from = piece
			k.I("AND", asmgen.Imm(p.before), bytes, piece)
			k.I("ADD", at, piece)
		}
		k.I("VLD1", from.At(0), element(v, p.typ))
		k.Place(none)
	}
	k.Place(done)
	k.release(zero)
	k.Free(at, piece)
}

// storeParts writes the bytes of a part from two registers, and overwrites these.
func (k *neonKernel) storeParts(v neonPair, m asmgen.Mem, s partSize) {
	k.storePart(v[0], m, s.first)
	k.storePart(v[1], m.Plus(16), s.second)
}

// storePart writes bytes, an even number up to 16, and overwrites the register.
func (k *neonKernel) storePart(v asmgen.Neon, m asmgen.Mem, bytes asmgen.Reg) {
	at, not16, done := k.address(m), k.Label("not16"), k.Label("stored")
	k.I("TBZ", asmgen.Imm(4), bytes, not16)
	k.I("FMOVQ", v, at.At(0))
	k.I("JMP", done)
	k.Place(not16)
	for _, p := range []struct {
		bit int
		typ string
	}{{3, "D"}, {2, "S"}, {1, "H"}} {
		none := k.Label("none")
		k.I("TBZ", asmgen.Imm(p.bit), bytes, none)
		k.I("VST1", element(v, p.typ), at.At(0))
		k.I("ADD", asmgen.Imm(1<<p.bit), at)
		k.I("VEXT", asmgen.Imm(1<<p.bit), v.B16(), v.B16(), v.B16())
		k.Place(none)
	}
	k.Place(done)
	k.Free(at)
}

// address returns a register with the address of memory.
func (k *neonKernel) address(m asmgen.Mem) asmgen.Reg {
	r := k.GP()
	k.I("MOVD", m.Address(), r)
	return r
}
