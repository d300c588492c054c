package mx

// Cast says how to quantize an operand: the format, and the rule that chooses its scales. Casts can
// be compared with ==. The zero Cast leaves an operand unchanged.
type Cast struct {
	Format Format
	Mode   ScaleMode // for E8M0 scales; the other types have one rule
}

// Quantizes says whether the cast does anything.
func (c Cast) Quantizes() bool { return c.Format.Quantizes() }
