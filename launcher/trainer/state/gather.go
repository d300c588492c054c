package state

import (
	"slices"

	"spmoe/collective"
	"spmoe/tensor/alloc"
)

// GatherTexts returns the text of each rank; nil if all are empty. It is collective.
func GatherTexts(c *collective.Comm, mine string) ([]string, error) {
	lengths := make([]int64, c.Size())
	own := lengths[c.Rank():][:1]
	own[0] = int64(len(mine))
	if err := collective.AllGather(c, lengths, own); err != nil || slices.Max(lengths) == 0 {
		return nil, err
	}
	var counts []int
	total := 0
	for _, n := range lengths {
		counts, total = append(counts, int(n)), total+int(n)
	}
	flat := alloc.Make[byte](total)
	if err := collective.AllGatherV(c, flat, []byte(mine), counts); err != nil {
		return nil, err
	}
	var texts []string
	for _, n := range counts {
		texts = append(texts, string(flat[:n]))
		flat = flat[n:]
	}
	return texts, nil
}
