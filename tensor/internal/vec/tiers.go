package vec

// The choice of kernels. vec_kernels.go has their type. vec_amd64.go, vec_arm64.go and vec_other.go
// have the table of kernels by instruction tier.

import "spmoe/tensor/cpu"

// active is the set in use. It is chosen once, and only tests replace it.
var active = cpu.Choose("vectors", table)
