package main

// The loop over the elements of slices, and their tails.

import "spmoe/tensor/asmgen"

// lanes is the usual number of elements per body: a pair of registers of AVX-512.
const lanes = 32

// tail selects the elements in the tail of a row, and upper those of its second half. Bodies may
// use the other masks.
var tail, upper = asmgen.K(1), asmgen.K(4)

// halves are the tail masks of the two halves.
var halves = [2]asmgen.Mask{tail, upper}

// eachInterleaved is each with the instructions of all copies interleaved. Use it for bodies with
// long chains of dependent instructions. Otherwise the CPU's schedulers fill up before they reach
// independent ones.
func (k *kernel) eachInterleaved(length string, period int, body func(j int)) {
	k.loop(length, lanes, max(period/lanes, 1), body, true, false)
}

func (k *kernel) each(length string, period int, body func(j int)) {
	k.loop(length, lanes, max(period/lanes, 1), body, false, period > noPeriod)
}

// loop prints a loop over the elements of the slices. length names the parameter with their number.
// body works on n elements (8, 16 or 32). It is printed unroll times, so that copy j can have its
// own lane sums. For AVX2, n is halved. unroll is then doubled, unless copies are interleaved.
//
// The tail after the last full round goes through the same copies under masks. So copy i/n mod
// unroll always processes element i. Unless copies have something of their own, AVX2 goes through
// the first one several times.
func (k *kernel) loop(length string, n, unroll int, body func(j int), interleaved, own bool) {
	if k.avx2 && interleaved {
		n, interleaved = n/2, false
	} else if k.avx2 {
		n, unroll = n/2, 2*unroll
	}
	round := n * unroll
	left := k.Load(length)
	head, rest, done := k.Label("loop"), k.Label("rest"), k.Label("done")
	k.I("XORL", k.i, k.i)
	k.I("SUBQ", asmgen.Imm(round), left)
	k.I("JLT", rest)
	k.Align(64)
	k.Place(head)
	copies := make([]func(), unroll)
	for j := range copies {
		copies[j] = func() { k.printCopy(n, j, body) }
	}
	if interleaved {
		k.Interleave(copies...)
	} else {
		for _, c := range copies {
			c()
		}
	}
	k.I("ADDQ", asmgen.Imm(round), k.i)
	k.I("SUBQ", asmgen.Imm(round), left)
	k.I("JGE", head)
	k.Place(rest)
	k.I("ADDQ", asmgen.Imm(round), left)
	k.I("JEQ", done)
	k.masked = true
	var counts asmgen.Vec
	if k.avx2 {
		k.count = k.GP()
	} else {
		counts = k.Z()
		k.I("VPBROADCASTW", left, counts)
	}
	for j := range unroll {
		var again asmgen.Label
		if k.avx2 {
			again = k.Label("again")
			k.Place(again)
			k.I("LEAQ", left.At(-n*j), k.count)
		} else {
			const greater = 6
			k.I("VPCMPUW", asmgen.Imm(greater), k.file.indices.Plus(2*n*j), counts, tail)
			k.I("KSHIFTRD", asmgen.Imm(n/2), tail, upper)
		}
		k.printCopy(n, j, body)
		if k.avx2 && !own {
			k.I("ADDQ", asmgen.Imm(n), k.i)
			k.I("SUBQ", asmgen.Imm(n), left)
			k.I("JGT", again)
			break
		}
		if j+1 < unroll {
			k.I("CMPQ", left, asmgen.Imm(n*(j+1)))
			k.I("JLE", done)
		}
	}
	k.masked = false
	k.Place(done)
	if k.avx2 {
		k.Free(k.count)
	} else {
		k.Free(counts)
	}
	k.Free(left)
}

// printCopy prints copy j of the body.
func (k *kernel) printCopy(n, j int, body func(j int)) {
	k.copy, k.step = j, n*j
	body(j)
	k.Free(k.temps...)
	k.temps = nil
}
