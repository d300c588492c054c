// Command asm generates the assembly of package nvfp4.
package main

import "spmoe/tensor/asmgen"

func main() { asmgen.Main(files()) }

// files returns the text of the generated files by name.
func files() map[string]string {
	f := asmgen.NewFile("nvfp4", "go run ./_asm", "amd64 && !purego")
	amaxBlocks(f)
	amaxWords(f)
	scales(f)
	for _, along := range []direction{rows, cols} {
		encode(f, along, false)
		encode(f, along, true)
		decode(f, along)
	}
	hadamard(f)
	draw(f)
	return map[string]string{"nvfp4_avx512_amd64.s": f.Asm(), "nvfp4_avx512_amd64.go": f.Stubs()}
}

// A direction is that of the blocks: one factor per 16 elements, or one per element.
type direction string

const (
	rows direction = "Rows"
	cols direction = "Cols"
)

func pointers(names ...string) (args []asmgen.Param) {
	for _, name := range names {
		args = append(args, asmgen.Arg(name, "unsafe.Pointer"))
	}
	return args
}

// constants holds one register per double word that a function broadcasts.
type constants struct {
	*asmgen.File
	*asmgen.Func
}

// broadcast returns a register with a double word in every lane.
func (c constants) broadcast(name string, word uint32) asmgen.Vec {
	v := c.Z()
	c.I("VPBROADCASTD", c.Data32(name, word), v)
	return v
}

const (
	magnitude = 1<<31 - 1
	exponent  = 0xff << 23
	one       = 1 << 23 // of an exponent field
)
