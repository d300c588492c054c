// Library trains a small Mixture-of-Experts model on two ranks with the public packages alone.
package main

import (
	"fmt"
	"log"
	"slices"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

const ranks, batch, seq, steps = 2, 8, 64, 20

func main() {
	data, err := datasets.Load(nil, datasets.Bytes{}, datasets.Options{}) // the text of the Go installation
	check(err)
	check(collective.NewWorld(ranks).Run(func(c *collective.Comm) error { return train(c, data.Train) }))
}

// train is what each rank runs. A rank owns half of the experts and reads half of every batch.
func train(c *collective.Comm, text datasets.Stream) error {
	cfg, err := moe.FlavorByName("debug")
	check(err)
	model, err := moe.New(cfg, moe.Unquantized(tensor.BF16), seq, c, nil)
	check(err)
	ex := tensor.NewExec()
	optimizer := optim.New(ex, model.Groups, c, optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1})
	check(optimizer.Init(1)) // the seed of the initial weights
	loader, err := datasets.NewLoader(text, datasets.LoaderConfig{Seq: seq, GlobalBatch: batch, Rank: c.Rank(), Ranks: ranks, Seed: 1})
	check(err)
	rows := make([]int32, batch/ranks*(seq+1))
	for step := range steps {
		check(loader.Next(rows))
		b := moe.Batch{Seq: seq, GlobalSequences: batch}
		for row := range slices.Chunk(rows, seq+1) { // the target of a token is the one after it
			b.Inputs, b.Targets = append(b.Inputs, row[:seq]...), append(b.Targets, row[1:]...)
		}
		loss, err := model.Train(ex, b) // forward and backward, with the exchange of tokens
		check(err)
		_, err = optimizer.Step(3e-3) // sums the gradients over the ranks and updates each rank's shard
		check(err)
		mean := []float64{loss.Sum / (batch * seq)}
		check(collective.AllReduce(c, mean, collective.Sum))
		if c.Rank() == 0 {
			fmt.Printf("step %2d  loss %.4f\n", step+1, mean[0])
		}
	}
	return nil
}

// check ends the program, with all its ranks, on the first error.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
