"""Prompts and results as text, with the tokenizer of a model's folder as Hugging Face stores it. Needs `tokenizers`."""

import os

from scheduler import Request


class Text:
    def __init__(self, folder):
        path = os.path.join(folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise SystemExit(f"--text: no {path}; expected --model to be a folder with tokenizer.json")
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise SystemExit("--text needs tokenizers: pip install tokenizers") from None
        self.tokenizer = Tokenizer.from_file(path)

    def requests(self, prompts, count, vocabulary):
        """One for each text. A model has at least as many tokens as its tokenizer; one with fewer is another's."""
        for tag, prompt in enumerate(prompts):
            tokens = self.tokenizer.encode(prompt).ids  # with what the tokenizer puts around a text, such as its first token
            if not tokens:
                raise SystemExit(f"--text {prompt!r} has no tokens")
            if max(tokens) >= vocabulary:
                raise SystemExit(f"--text {prompt!r} has token {max(tokens)}, expected one below the model's {vocabulary}")
            yield Request(tag, tokens, count)

    def of(self, tokens):
        """Without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def shown(self, request):
        return f"{self.of(request.tokens[: request.prompt_len])}|{self.of(request.output)}"
