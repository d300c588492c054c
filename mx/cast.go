package mx

// Cast says how an operand is quantized: to which format, and by which rule its scales are chosen.
// Casts are compared with ==. The zero Cast leaves an operand as it is.
type Cast struct {
	Format Format
	Mode   ScaleMode // of E8M0 scales; other types have one rule
}

// Quantizes says whether the cast does anything.
func (c Cast) Quantizes() bool { return c.Format.Quantizes() }
