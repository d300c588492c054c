package moe

// Seals detect that waiting memory has changed by itself. What a pass saves is sealed as soon as it
// is complete. It is compared after its last use, or just before it is overwritten. So a change is
// found wherever it happened in between, although the pass may have used the changed bytes. Such a
// pass goes on, because its exchanges are collective. Its results must be dropped: see
// Model.Damage.
//
// Each half of a block has a group of seals. What is in the arena of the pass when a layer begins
// is complete, so a layer begins with phase.seal. The backward pass of the half ends with
// phase.verify. It calls phase.unseal before it overwrites something.
//
// Seals are compared in the half of the backward pass that computes the gradients of inputs. What
// waits for a separate BackwardWeight after that is not covered. Neither is what stages pass to
// each other, until they have copied it.

import (
	"fmt"
	"slices"
	"unsafe"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// seal is memory with the checksum of its content.
type seal struct {
	memory []byte
	sum    uint64
}

// newSeal seals memory.
func newSeal(ex *tensor.Exec, memory []byte) seal {
	defer ex.Enter(ex.Enter(profile.Guards))
	return seal{memory, tensor.ChecksumBytes(ex, memory)}
}

// broken reports whether the memory has changed. A zero seal is whole.
func (s *seal) broken(ex *tensor.Exec) bool {
	defer ex.Enter(ex.Enter(profile.Guards))
	return s != nil && s.memory != nil && tensor.ChecksumBytes(ex, s.memory) != s.sum
}

// seals is a group of seals that are compared together.
type seals []seal

// blockSeals holds the seals of a block in a pass: of what its two halves have saved.
type blockSeals struct{ mix, feed seals }

// sealing reports whether this phase seals memory. A recomputation does not: its results are used
// at once.
func (p phase) sealing() bool { return p.sealed && !p.recomputing }

// newSeal seals x. Without seals it returns the zero seal.
func (p phase) newSeal(x tensor.Tensor) seal {
	if !p.sealing() {
		return seal{}
	}
	return newSeal(p.ex, x.Bytes())
}

// seal seals what the pass has saved since the last call of seal or skip.
func (p phase) seal() {
	if p.sealing() && p.group != nil {
		p.sealBetween(p.unsealed, p.arena.Mark())
		p.skip()
	}
}

// skip excludes what the pass has saved so far from the next seal.
func (p phase) skip() { p.unsealed = p.arena.Mark() }

// sealBetween seals what the pass has saved between two marks.
func (p phase) sealBetween(from, end tensor.Mark) {
	p.arena.Between(from, end, func(b []byte) bool {
		*p.group = append(*p.group, newSeal(p.ex, b))
		return true
	})
}

// sealTensor seals x, which a pass has saved, and excludes it from the next seal.
func (p phase) sealTensor(x tensor.Tensor) {
	if p.sealing() {
		*p.group = append(*p.group, newSeal(p.ex, x.Bytes()))
	}
	p.skip()
}

// sealValue seals a value outside arenas.
func sealValue[T any](p phase, v *T) {
	if p.sealing() {
		*p.group = append(*p.group, newSeal(p.ex, bytesOf(unsafe.Slice(v, 1))))
	}
}

// sealOf returns the seal of x, or of x and what was saved right after it; nil if it has none.
func (p phase) sealOf(x tensor.Tensor) *seal {
	if p.sealed && x.Len() > 0 {
		begin := unsafe.SliceData(x.Bytes())
		for i, s := range *p.group {
			if len(s.memory) > 0 && unsafe.SliceData(s.memory) == begin {
				return &(*p.group)[i]
			}
		}
	}
	return nil
}

// unseal compares the seal of x, which is overwritten next, and removes it.
func (p phase) unseal(x tensor.Tensor) {
	if s := p.sealOf(x); s != nil {
		p.compare(s)
		*s = seal{}
	}
}

// compare compares sealed memory of the current layer.
func (p phase) compare(s *seal) {
	if p.sealed && s.broken(p.ex) {
		p.model.damage(1 + p.layer)
	}
}

// verify compares a group.
func (p phase) verify(group seals) {
	for i := range group {
		p.compare(&group[i])
	}
}

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// sealBatch seals the tokens of the pass, which the embedding, the losses and the gradient of the
// embedding read.
func (p *Pass) sealBatch(ex *tensor.Exec) {
	p.tokens = p.tokens[:0]
	if p.sealed {
		b := &p.batch
		for _, x := range [...][]byte{bytesOf(b.Inputs), bytesOf(b.Targets), bytesOf(b.First), bytesOf(unsafe.Slice(b, 1))} {
			p.tokens = append(p.tokens, newSeal(ex, x))
		}
		if p.cp != nil {
			p.tokens = append(p.tokens, newSeal(ex, bytesOf(p.cp.whole.Targets)), newSeal(ex, bytesOf(p.cp.whole.First)), newSeal(ex, bytesOf(unsafe.Slice(p.cp, 1))))
		}
	}
}

// CheckGrad compares the gradients of a group with what the last pass has left there. Their seals
// count once; later calls find what SumGrad has found. [Model.Damage] has the result.
func (m *Model) CheckGrad(ex *tensor.Exec, group int) {
	g := m.Groups[group]
	broken := false
	for _, w := range g.weights {
		w.passes.checkAll(ex)
	}
	for i := range g.sums {
		broken = broken || g.sums[i].broken
	}
	for t := range g.passTrees {
		broken = broken || t.broken
	}
	if broken {
		m.damage(1 + m.layers() + slices.Index(groupNames[:], g.Name))
	}
}

// layers returns the number of blocks, including that of the MTP module.
func (m *Model) layers() int { return m.Config.Layers + m.Config.MTPLayers }

// damage records what has changed, unless an earlier change is recorded.
func (m *Model) damage(what int) {
	if m.damaged == 0 {
		m.damaged = what
	}
}

// Damage returns what memory has changed by itself since the last ZeroGrad, as a number for
// [Model.DescribeDamage]; 0 if none has. If several pieces have changed, it is the first that was
// found. All results of the passes since then may be wrong.
func (m *Model) Damage() int { return m.damaged }

// tokensDamage is the number for the tokens of a pass.
func (m *Model) tokensDamage() int { return 1 + m.layers() + len(groupNames) }

// DescribeDamage names the memory of a result of [Model.Damage], of this or another rank and of any
// stage.
func (m *Model) DescribeDamage(what int) string {
	switch {
	case what <= m.layers():
		return fmt.Sprintf("saved activations of layer %d", what-1)
	case what == m.tokensDamage():
		return "the tokens of a pass"
	}
	return groupNames[what-m.layers()-1] + " gradients"
}
