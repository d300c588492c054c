package mx_test

import (
	"spmoe/mx"
)

// nvfp4RHT is NVFP4 for the operands of wgrad.
var nvfp4RHT = withHadamard(mx.NVFP4, 16)

func withHadamard(f mx.Format, points int) mx.Format {
	f.Hadamard = points
	return f
}
