"""Continues a text with the Hugging Face library, the best token each time, to be compared with this engine:

    launcher convert --from RUN --to exported
    python generate.py exported "func (r *Reader) " 60
    launcher generate --checkpoint RUN --prompt "func (r *Reader) " --max-tokens 60 --temperature 0 --precision fp32
"""

import sys

import torch
from transformers import AutoTokenizer, DeepseekV3ForCausalLM

folder, prompt, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = DeepseekV3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
with torch.no_grad():
    print(tokenizer.decode(model.generate(ids, max_new_tokens=tokens, do_sample=False)[0]))
