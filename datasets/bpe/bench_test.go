package bpe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// benchText returns about n bytes of Go's own sources, file by file.
func benchText(b *testing.B, n int) (files [][]byte, size int64) {
	b.Helper()
	root := strings.TrimSpace(string(must(exec.Command("go", "env", "GOROOT").Output())))
	for _, pattern := range []string{"src/*/*.go", "src/*/*/*.go", "src/*/*/*/*.go", "src/*/*/*/*/*.go"} {
		paths := must(filepath.Glob(filepath.Join(root, pattern)))
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			if files, size = append(files, text), size+int64(len(text)); size >= int64(n) {
				return files, size
			}
		}
	}
	return files, size
}

// BenchmarkEncode encodes 8 MB of source code on one core, file by file.
func BenchmarkEncode(b *testing.B) {
	files, size := benchText(b, 8<<20)
	foreign := must(Tiktoken("gpt2"))
	foreign.stages = []stage{splitStage{match: must(compileAny(cl100kPattern)), behavior: isolated}}
	for _, c := range []struct {
		name string
		own  *Tokenizer
	}{
		{"gpt2", must(Tiktoken("gpt2"))}, {"cl100k", must(Tiktoken("cl100k_base"))}, {"o200k", must(Tiktoken("o200k_base"))},
		{"deepseek-stages", deepseekLike()}, {"general-regexp", foreign},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			tokens := 0
			for b.Loop() {
				tokens = 0
				for _, text := range files {
					tokens += len(c.own.Encode(text))
				}
			}
			b.ReportMetric(float64(size)/float64(tokens), "bytes/token")
		})
	}
}

// BenchmarkDecode decodes the same 8 MB.
func BenchmarkDecode(b *testing.B) {
	files, size := benchText(b, 8<<20)
	own := must(Tiktoken("cl100k_base"))
	var all [][]int32
	for _, text := range files {
		all = append(all, own.Encode(text))
	}
	b.SetBytes(size)
	for b.Loop() {
		for _, ids := range all {
			own.Decode(ids)
		}
	}
}

// BenchmarkTrain trains 8192 tokens on 25 MB of source code.
func BenchmarkTrain(b *testing.B) {
	files, size := benchText(b, 25<<20)
	b.SetBytes(size)
	for b.Loop() {
		must(Train(context.Background(), func(yield func([]byte) bool) {
			for _, text := range files {
				if !yield(text) {
					return
				}
			}
		}, 8192))
	}
}

// BenchmarkOpen reads the tokenizer.json of cl100k_base.
func BenchmarkOpen(b *testing.B) {
	data := must(must(Tiktoken("cl100k_base")).JSON())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		must(Parse(data))
	}
}
