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
//	other files   hf_files, hf_keys, hf, hf_rope
//	model         routing, qkclip, products, stages, pass, forward, model, layers
//	head          contexthead, head_gradient, head, head_sizes
//	layers        block, mtp, layer, balance, router, ffn, mla, gqa, attention, norm
//	construction  builder, sharded
//	sums          embedded, passsums, sums, group, sum_host, remoterows, replicas, deferred_wgrad,
//	              rest_rows, host
//	sharing       tensorparallel, contextparallel, mesh
//	products      linear, quantized, scales, draws, phase, activation, operands, exchange_timing
//	passes        share, sum_tree, param, pass_arenas, loss, batch
//	configuration precisions, precision, selection, recipe, recompute, linears, parts, stage, rope,
//	              init, config
//
// # The owners of a weight gradient's sum
//
// The gradient of a weight is the sum over the tokens of all ranks and the passes of a step. Up to
// five owners have it one after the other, in the order of this table. A layout skips those that it
// does not need.
//
//	owner         weights                   what, and when
//	rowStore      routed experts, if a      rows of dy and x, not multiplied yet: from
//	              step has several passes   linear.backwardWeight until there are enough rows, or the
//	                                        last pass; rows that fill no block until a later product
//	host.waiting  shared by a host's ranks  operands of a pass, not multiplied yet: from
//	                                        linear.backwardWeight until computeShared, at the end of
//	                                        a half of a block or of block.backwardWeight
//	passTree      all                       the sum over this rank's tokens or, of this rank's rows,
//	                                        over those of the host, as a tree over passes in
//	                                        weight.Grad and copies: from the product until ZeroGrad,
//	                                        or until one of the next two takes it
//	sharded       dense, with FSDP          this rank's slice of the sum over hosts and passes: from
//	                                        the end of a unit of a pass until ZeroGrad
//	passSums      norms, biases, routers;   this rank's part of the sum over ranks and passes: from
//	              dense, on several hosts   the end of a pass with Batch.More until SumGrad, which
//	                                        adds the last pass and leaves the result in Group.Grad
//
// The head and the embedding do not wait in host.waiting if ranks share them. The head adds its
// gradient in Forward, round by round (outputGradient), and the embedding at the end of a pass
// (host.embedBackward).
//
// Every owner adds in the order of a single rank, so the bits do not depend on the layout. A pass
// adds when its turn has come: see Pass.BackwardWeight.
package moe
