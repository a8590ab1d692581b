"""OpenVINO GenAI's continuous batching behind a pipe: runs in an environment of its own, without agentree.

Called as `python openvino_worker.py MODEL.gguf THREADS exact|native`: float32 arithmetic with a float16
cache, or what it chooses itself on this processor. Reads one request a line, answers one line each: the time
of the first token, then the text. Requests join between two steps.
"""

import json
import os
import queue
import sys
import threading
from importlib import import_module
from typing import Any, TextIO

END = 2
"""The end token of the model that is measured."""


def _read(inbox: "queue.Queue[dict[str, Any] | None]") -> None:
    for line in sys.stdin:
        inbox.put(json.loads(line))
    inbox.put(None)


class Worker:
    """One pipeline and the requests that run on it."""

    def __init__(self, model: str, threads: int, exact: bool, out: TextIO) -> None:
        self.ov, self.genai, self.np = map(import_module, ("openvino", "openvino_genai", "numpy"))
        scheduler = self.genai.SchedulerConfig()
        scheduler.cache_size = 2
        scheduler.enable_prefix_caching = True
        scheduler.max_num_batched_tokens = 512
        scheduler.max_num_seqs = 64
        scheduler.dynamic_split_fuse = True
        options: dict[str, object] = {"INFERENCE_NUM_THREADS": threads}
        if exact:
            options |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"}
        self.pipeline: Any = self.genai.ContinuousBatchingPipeline(model, scheduler, "CPU", options)
        self.tokenizer: Any = self.pipeline.get_tokenizer()
        self.out = out
        self.running: dict[int, tuple[Any, list[int], int]] = {}

    def say(self, **what: object) -> None:
        """One line to whoever asked."""
        print(json.dumps(what), file=self.out, flush=True)

    def add(self, asked: dict[str, Any]) -> None:
        """Take a request up."""
        config = self.genai.GenerationConfig()
        config.max_new_tokens = asked["tokens"]
        config.do_sample = False
        config.eos_token_id = END
        config.ignore_eos = asked["exact"]
        if asked["schema"]:
            schema = json.dumps(asked["schema"])
            config.structured_output_config = self.genai.StructuredOutputConfig(json_schema=schema)
        if asked["choices"]:
            pattern = f"({'|'.join(asked['choices'])})"
            config.structured_output_config = self.genai.StructuredOutputConfig(regex=pattern)
        prompt = self.tokenizer.apply_chat_template(asked["messages"], add_generation_prompt=True)
        ids = self.tokenizer.encode(prompt, add_special_tokens=False).input_ids.data
        handle = self.pipeline.add_request(asked["id"], self.ov.Tensor(ids.astype(self.np.int64)), config)
        self.running[asked["id"]] = (handle, [], int(ids.size))

    def step(self) -> None:
        """One step of everything that runs."""
        self.pipeline.step()
        for number, (handle, tokens, prompt) in list(self.running.items()):
            while handle.can_read():
                if not tokens:
                    self.say(id=number, first=True)
                for output in handle.read().values():
                    tokens += output.generated_ids
            if handle.get_status() != self.genai.GenerationStatus.RUNNING:
                del self.running[number]
                shown = [token for token in tokens if token != END]
                text = self.tokenizer.decode(shown) if shown else ""
                self.say(id=number, text=text, prompt=prompt, output=len(tokens))


def main() -> None:
    """Answer until the input ends."""
    # What the libraries print must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "exact", out)
    inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    worker.say(id=-1)
    while True:
        while worker.running or not inbox.empty():
            while not inbox.empty():
                asked = inbox.get()
                if asked is None:
                    return
                worker.add(asked)
            if worker.running:
                worker.step()
        asked = inbox.get()
        if asked is None:
            return
        worker.add(asked)


if __name__ == "__main__":
    main()
