// Package moe is a Mixture-of-Experts language model as DeepSeek-V3 (arXiv:2412.19437):
// multi-head latent attention, routed and shared experts, auxiliary-loss-free balancing and
// multi-token prediction. Its attention may be grouped-query attention instead, as in Qwen3-MoE and
// GLM-4.5. Forward and backward passes are written by hand, side by side.
//
// A Model is one rank's part: all replicated weights and the rank's own experts. Its passes are
// collective: all ranks of the communicator run them together, since their tokens visit each
// other's experts. A rank without tokens takes part with an empty batch.
//
// # The order of the files
//
// A file uses the definitions of those below it. TestArrows counts the arrows that run upwards.
//
//	generation    decode, cache
//	forecasts     dry, stage_cut, flavors, counts, costs
//	other files   hf_files, hf_v4, hf_indexer, hf_keys, hf, hf_rope
//	model         routing, qkclip, products, stages, pass, forward, model, layers
//	head          contexthead, head_gradient, head, head_sizes
//	layers        block, residual, join, streams, layer, balance, router, hashlayer, ffn,
//	              compressedattention, entrycache, compressor, compressed, sparse, mla, indexer,
//	              gqa, attention, norm
//	construction  builder, sharded
//	sums          embedded, passsums, sums, group, slice_sum, sum_host, ring, remoterows, replicas,
//	              deferred_wgrad, rest_rows, host
//	sharing       tensorparallel, contextparallel, mesh
//	products      linear, quantized, scales, draws, phase, activation, operands
//	passes        share, sum_tree, param, pass_arenas, loss, batch
//	configuration precisions, precision, selection, recipe, recompute, linears, parts, stage, rope,
//	              init, indexing, config
//
// layers has the list of the kinds of each layer: attention, feed-forward and residual. block is a
// layer with its norms and residuals, layer the experts of one. A module of multi-token prediction
// is a block of that list with a join in front. contextparallel and tensorparallel divide sequences
// and columns, quantized casts operands, and norm, bias and router gradients are summed over ranks
// in passsums.
//
// # The owners of gradients
//
// The gradient of a weight is the sum over the tokens of all ranks and the passes of a step. Each
// weight has one owner (sumOwner, chosen in sums.go), which adds what a pass contributes:
//
//	weight                     owner     adds, when                               file
//	norm                       ownSums   this rank's rows, in the norm's backward norm
//	router, bias               ownSums   this rank's rows, in backwardWeight      sums
//	dense, shared expert       host      some rows of the weight from the tokens  sum_host
//	                                     of all ranks of the host, at the end of
//	                                     a half of a block
//	dense, shared by no ranks  ownSums   this rank's tokens, in backwardWeight    sums
//	routed expert              rowSums   rows of many passes, if there are        deferred_wgrad
//	                                     enough, or after the last pass
//	the same, with replicas    rowSums   rows of all replicas, by one of them     replicas
//	the same, on several hosts rowSums   those of other hosts travel, or sums     remoterows, ring
//	head                       output    round by round, in Forward               head_gradient
//	embedding                  host      at the end of a pass                     embedded
//
// What ranks that share a sequence have is one chain of sums, in the order of its tokens
// (contextparallel, sum_host). A pass is a balanced tree over sequences and ranks, and a step one
// over passes (sum_tree, weight.passes), except for routed experts, which are one chain. A rank or
// a host that does not have the tokens of all sums pass by pass over the others: a sliceSum, with
// FSDP at the end of a unit (sharded), otherwise at the end of a pass with Batch.More and in
// SumGrad (passsums).
//
// Every owner adds in the order of a single rank, so the bits do not depend on the layout. A pass
// adds when its turn has come: see Pass.BackwardWeight.
package moe
