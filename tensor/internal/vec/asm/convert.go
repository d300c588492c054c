package main

// Conversions between bfloat16 and float32.

func widen(f *file) {
	k := f.newKernel("widen", rows("dst", "src"))
	dst, src := k.row("dst", fp32), k.row("src", bf16)
	k.each("dst_len", lanes, 1, func(int) { k.store(k.load(src), dst) })
	k.Return()
}

func round(f *file) {
	k := f.newKernel("round", rows("dst", "src"))
	dst, src := k.row("dst", bf16), k.row("src", fp32)
	k.rounding(bf16)
	k.each("dst_len", lanes, 1, func(int) { k.store(k.load(src), dst) })
	k.Return()
}
