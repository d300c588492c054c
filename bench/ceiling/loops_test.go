package main

import (
	"fmt"
	"testing"
)

// A loop around another is not an inner loop, and neither is a branch forward.
func TestInnerLoops(t *testing.T) {
	const nop = 0xd503201f
	words := []uint32{
		nop,
		0xb4000060, // cbz x0, 3 words ahead
		nop,        // head of the inner loop
		0xf1000421, // subs x1, x1, #1
		0x54ffffc1, // b.ne, 2 words back
		0xf1000442, // subs x2, x2, #1
		0x54ffff41, // b.ne, 6 words back
		nop,
		0x3707ffe3, // tbnz w3, #0, 1 word back
	}
	got := fmt.Sprintf("%x", innerLoops(words))
	want := fmt.Sprintf("%x", [][]uint32{{nop, 0xf1000421, 0x54ffffc1}, {nop, 0x3707ffe3}})
	if got != want {
		t.Errorf("loops are %s, want %s", got, want)
	}
}

func TestCountMultiplies(t *testing.T) {
	n, name := countMultiplies("\tbfmlalt\tv0.4s, v1.8h, v2.8h\n\tbfmlalb\tv0.4s, v1.8h, v2.8h\n")
	if n != 2 || name != "bfmlal" {
		t.Errorf("%d %s, want 2 bfmlal", n, name)
	}
	n, name = countMultiplies("\tldr\tq0, [x0]\n\tbfmmla\tv0.4s, v1.8h, v2.8h\n\tbfmmla\tv3.4s, v1.8h, v2.8h\n\tfmla\tv0.4s, v1.4s, v2.4s\n")
	if n != 2 || name != "bfmmla" {
		t.Errorf("%d %s, want 2 bfmmla", n, name)
	}
}
