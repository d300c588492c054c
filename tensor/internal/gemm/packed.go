package gemm

// Operands b that are packed once and used many times.

import "unsafe"

// Packed is a b with its panels. It also refers to b's memory, which must not change before the next Pack. The zero value is ready
// to be packed into. Products may share it.
type Packed struct {
	elements View   // [K, N] BF16
	codes    Scaled // or [N, K]
	panels   buffer
	bytes    int // of panels for each column; 0: there are none, and products take b as it is
}

// Pack packs b: [K, N], BF16 of any layout.
func (p *Packed) Pack(s *Scratch, b View) { p.pack(active, s, b) }

// PackMX packs b: [N, K].
func (p *Packed) PackMX(s *Scratch, b Scaled) { p.packMX(active, s, b) }

func (p *Packed) pack(ks *kernels, s *Scratch, b View) {
	p.elements, p.codes, p.bytes = b, Scaled{}, 0
	if ks.panels != nil && b.Rows > 0 && b.Cols > 0 {
		p.bytes = ks.panels(s, &p.panels, b)
	}
}

func (p *Packed) packMX(ks *kernels, s *Scratch, b Scaled) {
	p.elements, p.codes, p.bytes = View{}, b, 0
	if ks.scaledPanels != nil && b.Codes.Rows > 0 && b.Codes.Cols > 0 {
		p.bytes = ks.scaledPanels(s, &p.panels, b)
	}
}

// Columns is columns [lo, hi) of what Pack packed, lo a multiple of 32, as an operand b. The panels do not change the result.
func (p *Packed) Columns(lo, hi int) View {
	v := p.elements.slice(2, 0, lo, p.elements.Rows, hi-lo)
	v.panels = p.at(lo)
	return v
}

// Rows is rows [lo, hi) of what PackMX packed, lo a multiple of 32, as an operand b.
func (p *Packed) Rows(lo, hi int) Scaled {
	m := p.codes.rows(lo, hi-lo)
	m.Codes.panels = p.at(lo)
	return m
}

func (p *Packed) at(column int) unsafe.Pointer {
	if p.bytes == 0 {
		return nil
	}
	return unsafe.Add(p.panels.atLeast(0), column*p.bytes)
}
