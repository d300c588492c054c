package main

// The table of commands. Parsing, help and suggestions follow from it and from the
// flags that each command defines.

import (
	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
	"spmoe/launcher/inspecting"
	"spmoe/launcher/measuring"
	"spmoe/launcher/training"
)

func init() { cli.AllCommands = commands }

func commands() []cli.Command {
	return []cli.Command{
		{Name: "train", Group: cli.GroupTrain, About: "train a model on text", Define: training.DefineTrain, Outlives: true, Examples: []string{
			"-np 8 train --steps 100",
			"-np 4 train --flavor small --data corpus/ --precision mxfp8 --save-every 500 --out runs/small",
			"-np 4 train --resume --out runs/small",
			"-np 8 train --flavor 16B --dry-run",
		}},
		{Name: "generate", Group: cli.GroupInspect, About: "generate text with a trained model", Define: inspecting.DefineGenerate, Examples: []string{
			`generate --prompt "func main"`,
			`generate --checkpoint runs/debug-1 --prompt "// New" --temperature 0.8 --top-p 0.9 --max-tokens 200`,
		}},
		{Name: "eval", Group: cli.GroupInspect, About: "measure a trained model's validation loss", Define: inspecting.DefineEval, Examples: []string{
			"eval --checkpoint runs/debug-1",
			"-np 2 eval --checkpoint runs/debug-1 --data corpus/ --json",
		}},
		{Name: "inspect", Group: cli.GroupInspect, Args: "[FLAVOR|RUN...|CHECKPOINT|FOLDER]", About: "describe a model, its layouts and pipelines, or a run with its checkpoints", Define: inspecting.DefineInspect, Examples: []string{
			"inspect 671B",
			"inspect 16B -np 64 --layouts --hosts 2",
			"inspect small -np 4 --pp 4 --set pp_schedule=DualPipeV --batch 8",
			"inspect runs/debug-1 --verify",
			"inspect runs/debug-1 --html",
		}},
		{Name: "convert", Group: cli.GroupTrain, About: "convert a run, checkpoint or model to a Hugging Face model", Define: training.DefineConvert, Examples: []string{
			"convert --from runs/debug-1 --to exported",
			"convert --from runs/debug-1/step-00000360 --to exported --dtype fp32",
			"convert --from deepseek-fp8 --to deepseek-bf16 --dtype bf16",
		}},
		{Name: "data", Group: cli.GroupTrain, About: "tokenize text, or train a tokenizer", Subcommands: training.DataCommands(), Examples: []string{
			"data train-tokenizer --data corpus/ --vocab 8192 --out tokenizer.json",
			"data tokenize --data corpus/ --tokenizer tokenizer.json --out corpus.arrow",
		}},
		{Name: "compare", Group: cli.GroupCheck, About: "train in several precisions and test whether their final losses are equivalent", Define: checking.DefineCompare, Outlives: true, Examples: []string{
			"compare --quick",
			"-np 4 compare --precision bf16,mxfp8,mine.toml --seeds 24 --margin 1",
			"-np 4 compare --optimizer.lr 1e-3 --precision bf16,bf16+optimizer.lr=3e-3 --out runs/rates",
		}},
		{Name: "verify-layouts", Group: cli.GroupCheck, About: "train in every layout of the ranks and compare the states bit for bit", Define: checking.DefineVerifyLayouts, Examples: []string{
			"-np 8 verify-layouts",
			"-np 4 verify-layouts --ranks process --precision mxfp8 --json layouts.jsonl",
		}},
		{Name: "check", Group: cli.GroupCheck, Args: "FOLDER...", About: "judge a training step of another program, module by module", Define: checking.DefineCheck, Examples: []string{
			"check step/",
			"check step/ --json",
			"check step/ --write reference/",
		}},
		{Name: "project", Group: cli.GroupMeasure, About: "project training onto a cluster of GPUs", Define: measuring.DefineProject, Subcommands: measuring.ProjectCommands(), Examples: []string{
			"project --gpu b200",
			"project explain --exchange dedup --precision mxfp8-experts --duplicate 2",
			"project validate",
			"project --model 16B --layers 12 --gpu h100 --gpus 4 --seq 4096",
		}},
		{Name: "bench", Group: cli.GroupMeasure, About: "measure kernels, token exchange or training steps", Subcommands: measuring.BenchCommands(), Examples: []string{
			"bench kernels --quick",
			"-np 4 bench exchange",
			"-np 2 bench train --flavor small",
		}},
		{Name: "help", Group: cli.GroupAbout, Args: "[COMMAND [SUBCOMMAND]]", About: "list the commands, or describe one", Define: cli.DefineHelp, Examples: []string{
			"help train",
			"help bench exchange",
		}},
	}
}
