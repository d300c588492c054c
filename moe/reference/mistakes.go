package reference

import "slices"

// Mistake is a known fault of training programs, which Call.Mistake makes on purpose.
type Mistake struct {
	Name  string
	Says  string // one sentence for a verdict
	Kinds []Kind // of the modules that can have it
}

// Mistakes returns all known mistakes.
func Mistakes() []Mistake {
	return slices.Concat(
		of(ropeMistakes(), Core, Attention, Block),
		of(attentionMistakes(), Core, Attention, Block),
		of(normMistakes(), Norm, Attention, Block, Head),
		of(latentMistakes(), Attention, Block),
		of(actMistakes(), Act, MLP, Experts, MoE, Block),
		of(routerMistakes(), Router, MoE, Block),
		of(expertsMistakes(), Experts, MoE, Block),
		of(moeMistakes(), MoE, Block),
		of(residualMistakes(), Residual, Block),
		of(handoverMistakes(), Handover),
		of(linearMistakes(), Linear),
		of(embeddingMistakes(), Embedding),
		of(lossMistakes(), Loss, Head),
		of(balanceMistakes(), Balance),
	)
}

// of returns mistakes, given as pairs of a name and a sentence, of some kinds of modules.
func of(pairs [][2]string, kinds ...Kind) (all []Mistake) {
	for _, p := range pairs {
		all = append(all, Mistake{p[0], p[1], kinds})
	}
	return all
}

func ropeMistakes() [][2]string {
	return [][2]string{
		{"rope_other_pairs", "the rotary embedding pairs the wrong elements: halves instead of neighbours, or the reverse of what config.json asks for"},
		{"rope_missing", "queries and keys are not rotated"},
		{"rope_keys_only", "queries are not rotated"},
		{"rope_queries_only", "keys are not rotated"},
		{"rope_base_10000", "the rotary base is 10,000, not config.json's rope_theta"},
		{"rope_base_1000000", "the rotary base is 1,000,000, not config.json's rope_theta"},
		{"rope_reversed", "the rotary embedding turns the other way"},
		{"rope_queries_reversed", "queries and keys are rotated in opposite directions"},
		{"rope_no_yarn", "YaRN's frequencies are missing: the rotary embedding is the plain one"},
		{"rope_linear", "all frequencies are divided by the factor of YaRN, without its ramp"},
		{"rope_no_amplitude", "YaRN's attention factor is missing in the rotary tables"},
		{"rope_amplitude", "the rotary tables are multiplied by YaRN's 0.1·ln(factor)+1, which config.json cancels"},
		{"rope_position_plus_1", "positions of queries are one too large"},
		{"rope_positions_not_reset", "positions do not restart at documents"},
		{"rope_positions_reset", "positions restart at documents: position_ids run on"},
		{"rope_positions_run_on", "positions run on over the sequences of the batch"},
		{"rope_leading", "the rotary embedding turns the first elements of a head, not the last"},
		{"rope_trailing", "the rotary embedding turns the last elements of a head, not the first"},
		{"rope_whole_head", "the rotary embedding turns the whole head, not the part in config.json"},
		{"rope_values", "values are rotated as keys are"},
	}
}

func attentionMistakes() [][2]string {
	return [][2]string{
		{"scale_missing", "the scores are not scaled by 1/sqrt(head dimension)"},
		{"scale_of_nope", "the scores are scaled by the dimension without the rotary part"},
		{"scale_of_values", "the scores are scaled by the dimension of the values"},
		{"scale_of_rope", "the scores are scaled by the dimension of the rotary part"},
		{"scale_of_hidden", "the scores are scaled by the hidden size per head"},
		{"scale_squared", "the scores are scaled twice: by 1/(head dimension)"},
		{"mscale_missing", "YaRN's mscale is missing in the scores"},
		{"mscale_once", "YaRN's mscale enters the scores once, not squared"},
		{"mscale_twice", "YaRN's mscale² enters the scores twice"},
		{"mask_missing", "the causal mask is missing"},
		{"mask_early", "a token does not see itself"},
		{"mask_late", "a token sees the next one"},
		{"window_missing", "the sliding window is missing"},
		{"window_plus_1", "the sliding window is one token too long"},
		{"window_minus_1", "the sliding window is one token too short"},
		{"documents_joined", "tokens see other documents of their sequence"},
		{"documents_split", "tokens do not see all of their sequence: it is cut into documents"},
		{"padding_seen", "tokens see padding"},
		{"heads_interleaved", "query heads use key heads in turn, not in groups"},
		{"keys_swapped", "two key heads are swapped"},
		{"one_key_head", "all query heads use the first key head"},
		{"keys_values_swapped", "keys and values are split the wrong way"},
		{"softcap", "the scores are capped at 50·tanh(score/50)"},
		{"softmax_low", "the softmax sums in the model's precision, not FP32"},
		{"sigmoid_scores", "the scores go through a sigmoid, not a softmax"},
		{"sink", "the softmax has one more logit of 0 (an attention sink)"},
		{"keys_detached", "no gradient flows through the keys"},
		{"values_detached", "no gradient flows through the values"},
		{"queries_detached", "no gradient flows through the queries"},
		{"rope_key_detached", "no gradient flows through the key part that all heads share"},
		{"rope_key_first_head", "the shared key part gets its gradient from the first head only"},
		{"groups_first_head", "keys and values get their gradient from the first head of each group only"},
	}
}

func normMistakes() [][2]string {
	return [][2]string{
		{"norm_eps_1e-5", "a norm's eps is 1e-5"},
		{"norm_eps_1e-6", "a norm's eps is 1e-6"},
		{"norm_eps_1e-12", "a norm's eps is 1e-12"},
		{"norm_no_eps", "a norm's eps is missing"},
		{"norm_eps_outside", "a norm's eps is added to the root, not inside"},
		{"norm_weight_first", "a norm multiplies by its weight in FP32 and casts afterwards"},
		{"norm_cast_first", "a norm's statistics are computed in the model's precision"},
		{"norm_weight_plus_1", "a norm's weight is 1 + weight"},
		{"norm_weight_missing", "a norm does not multiply by its weight"},
		{"norm_layer", "LayerNorm, which takes off the mean, instead of RMSNorm"},
		{"norm_missing", "a norm is missing"},
		{"norm_all_heads", "a norm takes all heads together, not each"},
		{"norm_sum", "a norm divides by the root of the sum, not of the mean"},
		{"norm_statistic_detached", "no gradient flows through a norm's statistic"},
		{"norm_frozen", "a norm's weight has no gradient"},
	}
}

func latentMistakes() [][2]string {
	return [][2]string{
		{"query_norm_missing", "the norm of the queries is missing"},
		{"key_norm_missing", "the norm of the keys, or of their latent, is missing"},
		{"latent_norm_whole", "the norm of the latent covers the rotary part"},
		{"latent_detached", "no gradient flows through the latent of keys and values"},
		{"query_latent_detached", "no gradient flows through the latent of queries"},
		{"norm_after_rope", "queries and keys are rotated before their norms"},
		{"biases_missing", "the biases of projections are missing"},
	}
}

func actMistakes() [][2]string {
	return [][2]string{
		{"gate_up_swapped", "gate and up are swapped"},
		{"act_gelu", "the activation is GELU"},
		{"act_gelu_tanh", "the activation is GELU's tanh approximation"},
		{"act_relu", "the activation is ReLU"},
		{"act_sigmoid", "the activation is a sigmoid"},
		{"act_quick_gelu", "the activation is x·sigmoid(1.702·x)"},
		{"act_missing", "the activation is missing"},
		{"act_up_missing", "the product with up is missing"},
		{"act_clamped", "gate and up are clamped at 7"},
		{"act_up_plus_1", "the activation is multiplied by up + 1"},
		{"gate_detached", "no gradient flows through the gate"},
		{"up_detached", "no gradient flows through up"},
	}
}

func routerMistakes() [][2]string {
	return [][2]string{
		{"router_other_score", "scores are a softmax where config.json means a sigmoid, or the reverse"},
		{"router_softmax_of_chosen", "the softmax is over the chosen experts only"},
		{"router_no_bias", "the selection bias is missing"},
		{"router_bias_in_weights", "the selection bias is in the weights"},
		{"router_bias_negative", "the selection bias has the other sign"},
		{"router_other_norm", "weights are normalized although config.json says no, or the reverse"},
		{"router_norm_over_all", "weights are normalized over all experts, not the chosen ones"},
		{"router_no_scale", "routed_scaling_factor is missing"},
		{"router_scale_twice", "routed_scaling_factor is applied twice"},
		{"router_scale_before_norm", "routed_scaling_factor is applied before weights are normalized, which cancels it"},
		{"router_groups_ignored", "the groups of experts are ignored"},
		{"router_other_group_score", "a group's score is its largest where the sum of two is meant, or the reverse"},
		{"router_groups_of_scores", "groups are chosen without the selection bias"},
		{"router_over_tokens", "experts choose tokens: the top-k is over the wrong axis"},
		{"router_low_precision", "the router computes in the model's precision, not FP32"},
		{"router_detached", "no gradient flows through the router's weights"},
		{"router_input_detached", "the router has a gradient, but none flows to its input"},
		{"router_frozen", "the router's weight has no gradient"},
		{"router_norm_detached", "no gradient flows through the normalization of weights"},
		{"router_weights_uniform", "all chosen experts have the same weight"},
		{"router_weights_rotated", "weights belong to the wrong one of the chosen experts"},
	}
}

func expertsMistakes() [][2]string {
	return [][2]string{
		{"experts_missing_one", "one expert adds nothing"},
		{"experts_swapped", "two experts are swapped"},
		{"experts_shifted", "each token goes to the expert after the one chosen"},
		{"experts_weight_on_input", "the weight multiplies an expert's input"},
		{"experts_weight_on_act", "the weight multiplies an expert's activation before the gate"},
		{"experts_weight_squared", "the weight is applied twice"},
		{"experts_weight_missing", "the weight is not applied"},
		{"experts_last_choice_dropped", "the last choice of each token is dropped"},
		{"experts_first_choice_only", "only the first choice of each token is computed"},
		{"experts_capacity", "tokens beyond an expert's even share are dropped"},
		{"experts_overwritten", "a later choice overwrites an earlier one, which it should be added to"},
		{"experts_mean", "the experts' outputs are averaged, not summed"},
		{"experts_input_detached", "no gradient flows to the experts' input"},
		{"experts_weight_detached", "no gradient flows to the weights"},
		{"experts_frozen", "the experts have no gradients"},
		{"experts_frozen_one", "one expert has no gradients"},
	}
}

func moeMistakes() [][2]string {
	return [][2]string{
		{"shared_missing", "the shared experts are missing"},
		{"shared_twice", "the shared experts are added twice"},
		{"shared_scaled", "the shared experts are multiplied by routed_scaling_factor"},
		{"shared_gated", "the shared experts are multiplied by the sum of the weights"},
		{"shared_detached", "no gradient flows through the shared experts"},
		{"routed_missing", "the routed experts are missing"},
		{"routed_twice", "the routed experts are added twice"},
	}
}

func residualMistakes() [][2]string {
	return [][2]string{
		{"residual_missing", "the residual is missing: the first term of the sum"},
		{"branch_missing", "the branch is missing: the second term of the sum"},
		{"residual_twice", "the residual is added twice"},
		{"branch_twice", "the branch is added twice"},
		{"branch_subtracted", "the branch is subtracted"},
		{"sum_halved", "the sum is halved"},
		{"sum_by_root_2", "the sum is divided by the root of two"},
	}
}

func handoverMistakes() [][2]string {
	return [][2]string{
		{"handover_first_only", "only the first reader's gradient arrives"},
		{"handover_last_only", "only the last reader's gradient arrives"},
		{"handover_halved", "what arrives is half of what was sent"},
		{"handover_twice", "what arrives is twice what was sent"},
		{"handover_shifted", "what arrives is of the token before"},
	}
}

func linearMistakes() [][2]string {
	return [][2]string{
		{"linear_transposed", "the weight is transposed"},
		{"linear_no_bias", "the bias is missing"},
		{"linear_bias_twice", "the bias is added twice"},
		{"linear_frozen", "the weight has no gradient"},
		{"linear_detached", "no gradient flows to the input"},
		{"linear_halves_swapped", "the halves of the output are swapped"},
	}
}

func embeddingMistakes() [][2]string {
	return [][2]string{
		{"embedding_scaled", "the embedding is multiplied by the root of the hidden size"},
		{"embedding_shifted", "the embedding is of the next token"},
		{"embedding_id_plus_1", "the embedding is of the token id plus 1"},
		{"embedding_frozen", "the embedding has no gradient"},
		{"embedding_last_wins", "of equal tokens, only the last adds to the gradient"},
	}
}

func lossMistakes() [][2]string {
	return [][2]string{
		{"labels_shifted_twice", "labels are shifted twice: the target is the token after the next"},
		{"labels_not_shifted", "labels are not shifted: the target is the token itself"},
		{"labels_ignored_counted", "positions without a target count in the mean"},
		{"loss_mean_by_sequence", "the loss is the mean of the sequences' means"},
		{"loss_mean_over_tokens", "the loss is the mean over all targets of the batch"},
		{"loss_sum", "the loss is a sum, not a mean"},
		{"loss_last_missing", "the last target of each sequence is ignored"},
		{"loss_documents_crossed", "the last token of a document predicts the first of the next"},
		{"loss_documents_not_crossed", "the last token of a document predicts nothing"},
		{"loss_smoothed", "labels are smoothed by 0.1"},
		{"loss_softcap", "logits are capped at 30·tanh(logit/30)"},
	}
}

func balanceMistakes() [][2]string {
	return [][2]string{
		{"balance_missing", "the auxiliary loss has no gradient"},
		{"balance_twice", "the auxiliary loss counts twice"},
		{"balance_per_choice", "the auxiliary loss divides its counts by top-k"},
		{"balance_not_per_choice", "the auxiliary loss does not divide its counts by top-k"},
		{"balance_over_batch", "the auxiliary loss is over the batch, not each sequence"},
		{"balance_padding_counted", "the auxiliary loss counts padding"},
		{"balance_layer_sum", "the auxiliary loss is the sum over layers, not of all together"},
	}
}
