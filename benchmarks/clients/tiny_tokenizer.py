"""A tokenizer of 2,000 pieces in a directory, for peers that insist on one and would download it. Needs tokenizers.

python tiny_tokenizer.py DIR
"""

import json
import sys
from itertools import product
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<eos>",
    "pad_token": "<eos>",
    "unk_token": "<eos>",
    "model_max_length": 131072,
    "chat_template": TEMPLATE,
}


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = (
        " ".join(map("".join, product(letters, "aeiou", letters))) for letters in ("bdfg", "klmn", "prst")
    )
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
