package golden

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// folderFiles are those of a folder that a fuzzer writes, with what is in a good one.
var folderFiles = []string{"config.json", "model.safetensors", "activations.safetensors", "train_tokens.safetensors", "train_trajectory.json"}

// Whatever one file of a folder holds, the folder is refused with its name, or opened; its tokens
// are read, or refused.
func FuzzFolder(f *testing.F) {
	good := map[string][]byte{}
	for i, name := range folderFiles {
		content, err := os.ReadFile(filepath.Join("testdata", "deepseek_v3_tiny", name))
		if err != nil {
			f.Fatal(err)
		}
		good[name] = content
		if len(content) < 1<<16 {
			f.Add(uint8(i), content)
		}
	}
	f.Add(uint8(0), bytes.Replace(good["config.json"], []byte(`"vocab_size": 512`), []byte(`"vocab_size": 16777216`), 1))
	f.Add(uint8(4), []byte(`{"optimizer":{"betas":[0.9]},"steps":[{"lr":1e999}]}`))
	dir := f.TempDir()
	last := -1
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		at := int(which) % len(folderFiles)
		for i, name := range folderFiles {
			if last >= 0 && i != last && i != at {
				continue
			}
			text := good[name]
			if i == at {
				text = content
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		last = at
		folder, err := Open(dir)
		if err != nil {
			if !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: %v", folderFiles[at], err)
			}
			return
		}
		defer folder.Close()
		folder.newCheck()
		ids(folder.tokens, "tokens")
	})
}

// Whatever shapes, types and bytes an MX reference has, it is refused or compared.
func FuzzCheckMX(f *testing.F) {
	f.Add(uint8(0), uint8(4), uint8(32), uint8(2), uint8(3), []byte{1, 2, 3, 4})
	f.Add(uint8(1), uint8(33), uint8(40), uint8(5), uint8(1), []byte{0x80, 0x7f, 0xff})
	f.Add(uint8(2), uint8(6), uint8(32), uint8(3), uint8(2), []byte{3, 0, 0, 0, 6, 0, 0, 0})
	f.Add(uint8(2), uint8(6), uint8(32), uint8(3), uint8(2), []byte{0xfb, 0xff, 0xff, 0xff, 6, 0, 0, 0})
	f.Add(uint8(6), uint8(0), uint8(0), uint8(0), uint8(0), []byte{})
	f.Add(uint8(3), uint8(33), uint8(40), uint8(16), uint8(1), []byte{0x80, 0x3f, 0x12, 0xbe})
	f.Add(uint8(4), uint8(60), uint8(40), uint8(16), uint8(3), []byte{20, 0, 0, 0})
	f.Add(uint8(5), uint8(20), uint8(41), uint8(16), uint8(3), []byte{20, 0, 0, 0})
	f.Add(uint8(6), uint8(20), uint8(48), uint8(0), uint8(0), []byte{0x80, 0xff})
	f.Add(uint8(99), uint8(20), uint8(48), uint8(0), uint8(0), []byte{0x80, 0xff})
	path := filepath.Join(f.TempDir(), "mx.safetensors")
	f.Fuzz(func(t *testing.T, what, rows, cols, other, groups uint8, data []byte) {
		m, k, n, g := int(rows%70), int(cols%70), int(other%20), int(groups%5)
		fill := func(name, dtype string, bits int, dims ...int) safetensors.Tensor {
			size := bits / 8
			for _, d := range dims {
				size *= d
			}
			b := make([]byte, size)
			for i := 0; len(data) > 0 && i < len(b); i += len(data) {
				copy(b[i:], data)
			}
			return safetensors.Tensor{Name: name, DType: dtype, Shape: dims, Data: b}
		}
		bf16 := func(name string, dims ...int) safetensors.Tensor { return fill(name, safetensors.BF16, 16, dims...) }
		u8 := func(name string, dims ...int) safetensors.Tensor { return fill(name, safetensors.U8, 8, dims...) }
		var all []safetensors.Tensor
		f64 := func(name string, dims ...int) safetensors.Tensor { return fill(name, safetensors.F64, 64, dims...) }
		switch what % 7 {
		case 0:
			all = []safetensors.Tensor{fill("x", safetensors.F32, 32, m, k), u8("e4m3_rceil_data", m, k), u8("e4m3_rceil_scale", m, (k+31)/32)}
		case 1:
			all = []safetensors.Tensor{bf16("x", m, k), bf16("w", n, k), bf16("dy", m, n), bf16("y", m, n), bf16("dx", m, k), bf16("dw", n, k)}
		case 2:
			all = []safetensors.Tensor{
				bf16("a", m, k), bf16("w", g, n, k), bf16("do", m, n), fill("group_end", safetensors.I32, 32, g), bf16("o", m, n), bf16("da", m, k), bf16("dw", g, n, k),
			}
		case 3:
			all = []safetensors.Tensor{bf16("x", m, k), bf16("w", n, k), bf16("dy", m, n), f64("y_f64", m, n), f64("dw_f64", n, k)}
		case 4:
			all = []safetensors.Tensor{bf16("x", m, k), bf16("w", g, n, k), bf16("dy", m, n), fill("sizes", safetensors.I32, 32, g), f64("y_f64", m, n), f64("dw_f64", g, n, k)}
		case 5:
			all = []safetensors.Tensor{bf16("x", m, k), u8("rows_codes", m, k/2), u8("rows_scales", m, (k+15)/16), u8("zeros_codes", g, n), u8("zeros_scales", g, (n+7)/8), u8("rht_codes", k, m/2), u8("rht_scales", k, (m+15)/16)}
		case 6:
			all = []safetensors.Tensor{bf16("x", m, k), u8("xT_pow2_codes", k, m), fill("xT_pow2_scales", safetensors.F32, 32, k, 1), u8("x_pow2_codes", m, k), fill("x_pow2_scales", safetensors.F32, 32, m, 1)}
		}
		if drop := int(what / 7); drop < len(all) { // not all of them must be there
			all = append(all[:drop], all[drop+1:]...)
		}
		var text bytes.Buffer
		if err := safetensors.Encode(&text, all, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		if lines, err := CheckMX(path); (err == nil) != (len(lines) > 0) || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	})
}
