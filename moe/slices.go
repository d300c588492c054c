package moe

// Bench flavors of real widths: DeepSeek's shapes with fewer layers and experts, so that their
// products can be timed, and trained, on one machine. A slice keeps every width of its model. Only
// the vocabulary of 671B-slice is cut, because embedding and head would fill the memory.

// slice returns a flavor with some layers and experts of another one, whose products have the same
// shapes. A token still visits the same number of experts if half of them suffice.
func slice(name, about string, of Flavor, layers, experts int) Flavor {
	c := of.Config
	c.Layers, c.DenseLayers, c.Experts = layers, 1, experts
	c.TopK = min(c.TopK, experts/2)
	c.Groups = min(c.Groups, experts/2)
	c.TopKGroups = min(c.TopKGroups, max(c.Groups/2, 1))
	return Flavor{name, about, of.Name, c, trainSlice(of.Training)}
}

// trainSlice returns settings for a few hundred steps with the rate of the whole model. The moments
// are BF16 in all slices, as 671B has them, because a slice has to fit a machine: 4 bytes per
// parameter less than with FP32. 16B-slice then fits 16 GiB on one or two ranks.
func trainSlice(of Training) Training {
	t := trainSmall()
	t.Steps, t.Seq, t.MicroBatch, t.EvalSequences = 300, 1024, 1, 16
	t.LR, t.Warmup, t.Moments, t.ChainPasses = of.LR, 30, MomentsBF16, true
	return t
}

func slices16B(of Flavor) []Flavor {
	return []Flavor{
		slice("16B-slice", "3 layers and 16 experts of 16B, with all its widths: fits 16 GiB", of, 3, 16),
		slice("16B-slice-128G", "10 layers of 16B with all their experts: fits 128 GiB", of, 10, 64),
	}
}

func slices671B(of Flavor) []Flavor {
	small := slice("671B-slice", "2 layers and 8 experts of 671B, with a vocabulary of 8,192: fits 20 GiB", of, 2, 8)
	small.Config.Vocab = 8192
	return []Flavor{
		small,
		slice("671B-slice-128G", "3 layers and 64 experts of 671B, with all its widths: fits 128 GiB", of, 3, 64),
	}
}
