// Package philox is the counter-based random number generator Philox4x32-10.
//
// Source: J. K. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011). PyTorch and
// cuRAND have the same generator.
package philox

// Block returns the 128 random bits of a counter under a key.
func Block(key [2]uint32, counter [4]uint32) [4]uint32 {
	const multiply0, multiply1, increase0, increase1 = 0xd2511f53, 0xcd9e8d57, 0x9e3779b9, 0xbb67ae85
	c0, c1, c2, c3 := counter[0], counter[1], counter[2], counter[3]
	k0, k1 := key[0], key[1]
	for range 10 {
		p0, p1 := multiply0*uint64(c0), multiply1*uint64(c2)
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0, k1 = k0+increase0, k1+increase1
	}
	return [4]uint32{c0, c1, c2, c3}
}
